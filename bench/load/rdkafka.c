/* librdkafka driven from C: produce, consume, and events that carry the time at which they were due.
 *
 * The library is the one inside the confluent-kafka wheel, which brings no headers: the few calls that are used are
 * declared here, as its public interface has them since 1.0. The caller loads the library first, with its names for
 * all. Every call makes its own client from a list of settings and ends it. Results are 0, or one of the negative
 * codes below. Built as a shared library by rdkafka.py.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <time.h>

typedef struct rd_kafka_s rd_kafka_t;
typedef struct rd_kafka_conf_s rd_kafka_conf_t;
typedef struct rd_kafka_topic_s rd_kafka_topic_t;
typedef struct rd_kafka_topic_conf_s rd_kafka_topic_conf_t;
typedef struct rd_kafka_queue_s rd_kafka_queue_t;

typedef struct {
    int err;
    rd_kafka_topic_t *rkt;
    int32_t partition;
    void *payload;
    size_t len;
    void *key;
    size_t key_len;
    int64_t offset;
    void *private_;
} rd_kafka_message_t;

enum { RD_KAFKA_PRODUCER, RD_KAFKA_CONSUMER };
enum { RD_KAFKA_MSG_F_COPY = 2, QUEUE_FULL = -184, PARTITION_EOF = -191 };
enum { OFFSET_BEGINNING = -2, OFFSET_END = -1 };

rd_kafka_conf_t *rd_kafka_conf_new(void);
int rd_kafka_conf_set(rd_kafka_conf_t *, const char *, const char *, char *, size_t);
void rd_kafka_conf_set_opaque(rd_kafka_conf_t *, void *);
void rd_kafka_conf_set_dr_msg_cb(rd_kafka_conf_t *, void (*)(rd_kafka_t *, const rd_kafka_message_t *, void *));
void rd_kafka_conf_set_connect_cb(rd_kafka_conf_t *, int (*)(int, const struct sockaddr *, int, const char *, void *));
rd_kafka_t *rd_kafka_new(int, rd_kafka_conf_t *, char *, size_t);
rd_kafka_topic_t *rd_kafka_topic_new(rd_kafka_t *, const char *, rd_kafka_topic_conf_t *);
void rd_kafka_topic_destroy(rd_kafka_topic_t *);
int rd_kafka_produce(rd_kafka_topic_t *, int32_t, int, void *, size_t, const void *, size_t, void *);
int rd_kafka_last_error(void);
int rd_kafka_poll(rd_kafka_t *, int);
int rd_kafka_flush(rd_kafka_t *, int);
void rd_kafka_destroy(rd_kafka_t *);
rd_kafka_queue_t *rd_kafka_queue_new(rd_kafka_t *);
void rd_kafka_queue_destroy(rd_kafka_queue_t *);
int rd_kafka_consume_start_queue(rd_kafka_topic_t *, int32_t, int64_t, rd_kafka_queue_t *);
int rd_kafka_consume_stop(rd_kafka_topic_t *, int32_t);
ssize_t rd_kafka_consume_batch_queue(rd_kafka_queue_t *, int, rd_kafka_message_t **, size_t);
void rd_kafka_message_destroy(rd_kafka_message_t *);

enum { NOT_MADE = -1, NOT_PRODUCED = -2, NOT_DELIVERED = -3, STALLED = -4 };

/* Silence of the broker after which a run has failed. */
#define PATIENCE_MS 20000
#define BATCH 10000
/* Between two events that only ask whether the consumer reads already. */
#define PROBE_NS 20000000u
#define MAX_PARTITIONS 64
#define MAX_RELAYS 16

/* Ports of brokers, and those of the relays to which clients connect in their place. No client runs while they change. */
static uint16_t relayed[MAX_RELAYS], relays[MAX_RELAYS];
static size_t relay_count;

typedef struct {
    uint64_t messages;
    double seconds;
} Outcome;

/* Settings of a client: names and values in turn. */
typedef struct {
    const char **pairs;
    size_t count;
} Settings;

typedef struct {
    uint64_t delivered, failed;
} Reports;

typedef struct {
    rd_kafka_t *client;
    rd_kafka_topic_t *topic;
    Reports reports;
} Producer;

static uint64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void report(rd_kafka_t *client, const rd_kafka_message_t *message, void *opaque) {
    Reports *reports = opaque;
    (void)client;
    if (message->err) reports->failed++;
    else reports->delivered++;
}

/* Brokers advertise their own addresses, so a client leaves a relay that it was only given to begin with. */
int set_relays(const uint16_t *from, const uint16_t *to, size_t count) {
    if (count > MAX_RELAYS) return NOT_MADE;
    memcpy(relayed, from, count * sizeof *from);
    memcpy(relays, to, count * sizeof *to);
    relay_count = count;
    return 0;
}

static int connect_to_relay(int fd, const struct sockaddr *address, int size, const char *name, void *opaque) {
    struct sockaddr_storage place;
    (void)name, (void)opaque;
    memcpy(&place, address, (size_t)size);
    if (address->sa_family == AF_INET) {
        struct sockaddr_in *in = (struct sockaddr_in *)&place;
        for (size_t index = 0; index < relay_count; index++)
            if (ntohs(in->sin_port) == relayed[index]) {
                in->sin_port = htons(relays[index]);
                break;
            }
    }
    return connect(fd, (struct sockaddr *)&place, (socklen_t)size) && errno != EINPROGRESS ? errno : 0;
}

static rd_kafka_t *new_client(int kind, const Settings *settings, Reports *reports) {
    char why[256];
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    for (size_t index = 0; index < settings->count; index++)
        if (rd_kafka_conf_set(conf, settings->pairs[2 * index], settings->pairs[2 * index + 1], why, sizeof why))
            return NULL;
    if (relay_count) rd_kafka_conf_set_connect_cb(conf, connect_to_relay);
    if (reports) {
        rd_kafka_conf_set_opaque(conf, reports);
        rd_kafka_conf_set_dr_msg_cb(conf, report);
    }
    return rd_kafka_new(kind, conf, why, sizeof why);
}

static int open_producer(Producer *producer, const Settings *settings, const char *topic) {
    memset(producer, 0, sizeof *producer);
    producer->client = new_client(RD_KAFKA_PRODUCER, settings, &producer->reports);
    if (!producer->client) return NOT_MADE;
    producer->topic = rd_kafka_topic_new(producer->client, topic, NULL);
    return producer->topic ? 0 : NOT_MADE;
}

static void close_producer(Producer *producer) {
    if (producer->topic) rd_kafka_topic_destroy(producer->topic);
    if (producer->client) rd_kafka_destroy(producer->client);
}

static int put(Producer *producer, int32_t partition, void *payload, size_t size) {
    while (rd_kafka_produce(producer->topic, partition, RD_KAFKA_MSG_F_COPY, payload, size, NULL, 0, NULL)) {
        if (rd_kafka_last_error() != QUEUE_FULL) return NOT_PRODUCED;
        rd_kafka_poll(producer->client, 10);
    }
    return 0;
}

static int settle(Producer *producer) {
    if (rd_kafka_flush(producer->client, PATIENCE_MS)) return STALLED;
    return producer->reports.failed ? NOT_DELIVERED : 0;
}

/* Produces events of one size for `seconds`, to the partitions in turn, and waits for the last report. */
int produce_for(const Settings *settings, const char *topic, uint32_t partitions, size_t size, double seconds,
                Outcome *outcome) {
    Producer producer;
    uint8_t *payload = malloc(size);
    for (size_t index = 0; index < size; index++) payload[index] = (uint8_t)(index * 31 % 251);
    int result = open_producer(&producer, settings, topic);
    /* The first one finds the broker, signs in and asks for the leader: another question. */
    if (!result) result = put(&producer, 0, payload, size);
    if (!result) result = settle(&producer);
    uint64_t began = now_ns(), until = began + (uint64_t)(seconds * 1e9);
    for (uint64_t sent = 0; !result && (sent % 256 || now_ns() < until); sent++) {
        result = put(&producer, (int32_t)(sent % partitions), payload, size);
        if (sent % 1024 == 0) rd_kafka_poll(producer.client, 0);
    }
    if (!result) result = settle(&producer);
    outcome->seconds = (double)(now_ns() - began) / 1e9;
    outcome->messages = producer.reports.delivered - 1;
    close_producer(&producer);
    free(payload);
    return result;
}

typedef struct {
    rd_kafka_t *client;
    rd_kafka_topic_t *topic;
    rd_kafka_queue_t *queue;
    uint32_t partitions;
    rd_kafka_message_t **batch;
} Consumer;

static int open_consumer(Consumer *consumer, const Settings *settings, const char *topic, uint32_t partitions,
                         int64_t offset) {
    memset(consumer, 0, sizeof *consumer);
    consumer->client = new_client(RD_KAFKA_CONSUMER, settings, NULL);
    if (!consumer->client) return NOT_MADE;
    consumer->topic = rd_kafka_topic_new(consumer->client, topic, NULL);
    consumer->queue = rd_kafka_queue_new(consumer->client);
    consumer->batch = malloc(BATCH * sizeof *consumer->batch);
    for (; consumer->partitions < partitions; consumer->partitions++)
        if (rd_kafka_consume_start_queue(consumer->topic, (int32_t)consumer->partitions, offset, consumer->queue))
            return NOT_MADE;
    return 0;
}

static void close_consumer(Consumer *consumer) {
    while (consumer->partitions) rd_kafka_consume_stop(consumer->topic, (int32_t)--consumer->partitions);
    if (consumer->queue) rd_kafka_queue_destroy(consumer->queue);
    if (consumer->topic) rd_kafka_topic_destroy(consumer->topic);
    if (consumer->client) rd_kafka_destroy(consumer->client);
    free(consumer->batch);
}

/* Consumes from the beginning of all partitions, for `seconds` after the first event or until so many have come. */
int consume_for(const Settings *settings, const char *topic, uint32_t partitions, uint64_t limit, double seconds,
                Outcome *outcome) {
    Consumer consumer;
    int result = open_consumer(&consumer, settings, topic, partitions, OFFSET_BEGINNING);
    uint64_t began = 0, last = 0, got = 0, asked = now_ns();
    while (!result && got < limit && (!began || (double)(last - began) / 1e9 < seconds)) {
        ssize_t count = rd_kafka_consume_batch_queue(consumer.queue, 100, consumer.batch, BATCH);
        last = now_ns();
        for (ssize_t index = 0; index < count; index++) {
            got += !consumer.batch[index]->err;
            rd_kafka_message_destroy(consumer.batch[index]);
        }
        /* The clock starts with the first events: connecting and seeking is another question. */
        if (got && !began) began = last, got = 0, limit -= (uint64_t)count;
        if (count <= 0 && last - (began ? began : asked) > (uint64_t)PATIENCE_MS * 1000000u) result = STALLED;
    }
    outcome->seconds = (double)(last - began) / 1e9;
    outcome->messages = got;
    close_consumer(&consumer);
    return result;
}

typedef struct {
    Producer producer;
    uint32_t partitions;
    size_t size;
    uint64_t interval_ns, count;
    int result;
} Pace;

/* An event begins with its number, 0 for a probe, and the time at which it was due. */
static int put_due(Pace *pace, int32_t partition, uint64_t number, uint64_t due, uint8_t *payload) {
    memcpy(payload, &number, sizeof number);
    memcpy(payload + sizeof number, &due, sizeof due);
    return put(&pace->producer, partition, payload, pace->size);
}

static void *keep_pace(void *argument) {
    Pace *pace = argument;
    uint8_t *payload = calloc(1, pace->size);
    uint64_t due = now_ns() + pace->interval_ns;
    for (uint64_t number = 1; !pace->result && number <= pace->count; number++, due += pace->interval_ns) {
        struct timespec then = {(time_t)(due / 1000000000u), (long)(due % 1000000000u)};
        clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &then, NULL);
        pace->result = put_due(pace, (int32_t)(number % pace->partitions), number, due, payload);
        rd_kafka_poll(pace->producer.client, 0);
    }
    if (!pace->result) pace->result = settle(&pace->producer);
    free(payload);
    return NULL;
}

/* Sends probes until the consumer has seen one from every partition: it reads from the end, wherever that was. */
static int await_consumer(Pace *pace, Consumer *consumer) {
    uint8_t seen[MAX_PARTITIONS] = {0}, *payload = calloc(1, pace->size);
    uint32_t left = pace->partitions;
    uint64_t asked = now_ns(), probed = 0;
    int result = 0;
    while (!result && left) {
        uint64_t now = now_ns();
        if (now - asked > (uint64_t)PATIENCE_MS * 1000000u) result = STALLED;
        if (now - probed > PROBE_NS) {
            for (uint32_t partition = 0; !result && partition < pace->partitions; partition++)
                result = put_due(pace, (int32_t)partition, 0, now, payload);
            probed = now;
        }
        rd_kafka_poll(pace->producer.client, 0);
        ssize_t count = rd_kafka_consume_batch_queue(consumer->queue, 5, consumer->batch, BATCH);
        for (ssize_t index = 0; index < count; index++) {
            rd_kafka_message_t *message = consumer->batch[index];
            if (!message->err && !seen[message->partition]) seen[message->partition] = 1, left--;
            rd_kafka_message_destroy(message);
        }
    }
    free(payload);
    return result;
}

static uint64_t take_waits(Consumer *consumer, uint64_t *waits_ns, uint64_t got, uint64_t limit) {
    /* One event at a time: a batch would be waited for to be full. */
    ssize_t count = rd_kafka_consume_batch_queue(consumer->queue, 100, consumer->batch, 1);
    uint64_t now = now_ns();
    for (ssize_t index = 0; index < count; index++) {
        rd_kafka_message_t *message = consumer->batch[index];
        uint64_t number, due;
        if (!message->err && got < limit) {
            memcpy(&number, message->payload, sizeof number);
            memcpy(&due, (uint8_t *)message->payload + sizeof number, sizeof due);
            if (number) waits_ns[got++] = now - due;
        }
        rd_kafka_message_destroy(message);
    }
    return got;
}

/* Sends `count` events, one each `interval_ns`; `waits_ns` gets what each took from when it was due to its arrival. */
int latency_run(const Settings *producing, const Settings *consuming, const char *topic, uint32_t partitions,
                size_t size, uint64_t interval_ns, uint64_t count, uint64_t *waits_ns) {
    Pace pace = {.partitions = partitions, .size = size, .interval_ns = interval_ns, .count = count};
    Consumer consumer;
    int result = partitions > MAX_PARTITIONS ? NOT_MADE : open_producer(&pace.producer, producing, topic);
    int opened = open_consumer(&consumer, consuming, topic, partitions, OFFSET_END);
    if (!result) result = opened;
    if (!result) result = await_consumer(&pace, &consumer);
    if (!result) {
        pthread_t thread;
        pthread_create(&thread, NULL, keep_pace, &pace);
        uint64_t got = 0, until = now_ns() + interval_ns * count + (uint64_t)PATIENCE_MS * 1000000u;
        while (got < count && !pace.result && now_ns() < until) got = take_waits(&consumer, waits_ns, got, count);
        if (got < count) result = STALLED;
        pthread_join(thread, NULL);
        if (pace.result) result = pace.result;
    }
    close_producer(&pace.producer);
    close_consumer(&consumer);
    return result;
}
