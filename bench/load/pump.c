/* A fast AMQP client: it sends copies of prepared transfers and reads only the headers of incoming frames.
 *
 * The caller has opened the connection, begun the session and attached the link; this file sends and
 * receives transfers as fast as the socket allows. Outgoing deliveries are copies of one template in which ids are set;
 * of incoming frames the size and the performative are read, and of dispositions and flows the few fields that credit,
 * window and settlement need (AMQP 1.0, 2.5.6, 2.6.7 and 2.7.6). Messages are never opened.
 *
 * Every call ends after a number of deliveries or a number of seconds, whichever comes first. Results are 0, or one of
 * the negative codes below. Built as a shared library by raw_amqp.py.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { LOST = -1, ENDED_BY_PEER = -2, REFUSED = -3, STALLED = -4, UNREADABLE = -5 };

enum {
    FLOW = 0x13,
    TRANSFER = 0x14,
    DISPOSITION = 0x15,
    DETACH = 0x16,
    END = 0x17,
    CLOSE = 0x18,
    ACCEPTED = 0x24,
};

#define FRAME_HEADER_BYTES 8
#define INPUT_BYTES (1 << 20)
#define OUTPUT_BYTES (256 * 1024)
/* A run fails when the peer has sent nothing for this long. */
#define PATIENCE_MS 10000
#define FULL_WINDOW 0x7fffffffu

typedef struct {
    uint64_t deliveries;
    double seconds;
} Outcome;

/* The frames of one delivery, and the positions of its id in them. */
typedef struct {
    const uint8_t *bytes;
    size_t size;
    const uint32_t *id_places;
    size_t id_count;
    uint32_t frames;
} Template;

/* State of a link when the C code takes it over. */
typedef struct {
    uint32_t next_id;        /* our next delivery-id, sending */
    uint32_t next_outgoing;  /* our next transfer-id, sending */
    uint32_t credit;         /* granted to us, sending; to be granted, receiving */
    uint32_t delivery_count;
    uint32_t window;         /* transfers that the peer's session takes, sending */
    uint32_t next_incoming;  /* the peer's next transfer-id, receiving */
    uint16_t channel;
    uint32_t handle;
} Terms;

typedef struct {
    int fd;
    uint8_t *data;
    size_t begin, end;
} Input;

typedef struct {
    uint64_t settled;
    uint32_t credit_limit;  /* delivery-count up to which the peer lets us go */
    uint32_t window_limit;  /* transfer-id up to which its session does */
} Sender;

static double now_s(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static uint64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static uint32_t get_u32(const uint8_t *at) {
    return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

static void put_u32(uint8_t *at, uint32_t number) {
    at[0] = number >> 24;
    at[1] = number >> 16;
    at[2] = number >> 8;
    at[3] = number;
}

/* Reads the available bytes; returns their number, 0 if there are none, or LOST. */
static ssize_t fill(Input *in) {
    if (in->begin) {
        memmove(in->data, in->data + in->begin, in->end - in->begin);
        in->end -= in->begin;
        in->begin = 0;
    }
    ssize_t got = recv(in->fd, in->data + in->end, INPUT_BYTES - in->end, MSG_DONTWAIT);
    if (got > 0) {
        in->end += (size_t)got;
        return got;
    }
    return got < 0 && (errno == EAGAIN || errno == EINTR) ? 0 : LOST;
}

/* The next complete frame and its performative; NULL if there is none yet. */
static const uint8_t *next_frame(Input *in, uint32_t *size, int *performative) {
    if (in->end - in->begin < FRAME_HEADER_BYTES) return NULL;
    const uint8_t *frame = in->data + in->begin;
    *size = get_u32(frame);
    if (*size < FRAME_HEADER_BYTES || *size > in->end - in->begin) return NULL;
    in->begin += *size;
    /* All descriptors of both brokers are small ulongs; an empty frame is a heartbeat. */
    *performative = *size > FRAME_HEADER_BYTES + 2 && frame[9] == 0x53 ? frame[10] : 0;
    return frame;
}

/* First field of the list behind a performative's descriptor. */
static const uint8_t *fields_of(const uint8_t *frame) {
    return frame[11] == 0xd0 ? frame + 20 : frame + 14;
}

/* One uint or boolean field; `given` says whether it was not null. */
static const uint8_t *read_field(const uint8_t *at, uint32_t *number, int *given) {
    *given = 1;
    switch (*at) {
        case 0x40: *given = 0; return at + 1;
        case 0x41: *number = 1; return at + 1;
        case 0x42:
        case 0x43: *number = 0; return at + 1;
        case 0x52:
        case 0x56: *number = at[1]; return at + 2;
        case 0x70: *number = get_u32(at + 1); return at + 5;
        default: return NULL;
    }
}

static int take_disposition(Sender *sender, const uint8_t *frame) {
    uint32_t role = 0, first = 0, last = 0, settled = 0;
    int given, has_last;
    const uint8_t *at = fields_of(frame);
    if (!(at = read_field(at, &role, &given)) || !(at = read_field(at, &first, &given))) return UNREADABLE;
    if (!(at = read_field(at, &last, &has_last)) || !(at = read_field(at, &settled, &given))) return UNREADABLE;
    if (at[0] != 0 || at[1] != 0x53) return UNREADABLE;
    if (at[2] != ACCEPTED) return REFUSED;
    sender->settled += has_last ? (uint64_t)(last - first) + 1 : 1;
    return 0;
}

static int take_flow(Sender *sender, const uint8_t *frame) {
    uint32_t fields[7] = {0};
    int given[7] = {0};
    /* A list may end early: a missing field is a null one. */
    uint32_t count = frame[11] == 0xd0 ? get_u32(frame + 16) : frame[13];
    const uint8_t *at = fields_of(frame);
    for (uint32_t index = 0; index < 7 && index < count; index++)
        if (!(at = read_field(at, &fields[index], &given[index]))) return UNREADABLE;
    if (given[0]) sender->window_limit = fields[0] + fields[1];
    if (given[4] && given[6]) sender->credit_limit = fields[5] + fields[6];
    return 0;
}

/* Reads all frames that the peer of a sender has sent; handles dispositions and flows. */
static int take_answers(Sender *sender, Input *in) {
    uint32_t size;
    int performative, result = 0;
    const uint8_t *frame;
    while (!result && (frame = next_frame(in, &size, &performative))) {
        if (performative == DISPOSITION) result = take_disposition(sender, frame);
        else if (performative == FLOW) result = take_flow(sender, frame);
        else if (performative == DETACH || performative == END || performative == CLOSE) result = ENDED_BY_PEER;
    }
    return result;
}

static int wait_for(int fd, short events) {
    struct pollfd waiting = {.fd = fd, .events = events};
    return poll(&waiting, 1, PATIENCE_MS) > 0 ? 0 : STALLED;
}

/* How many more deliveries may be sent now. */
static uint64_t room(const Sender *sender, const Template *template, const Terms *terms, uint64_t sent,
                     uint64_t in_flight) {
    int32_t credit = (int32_t)(sender->credit_limit - terms->delivery_count - (uint32_t)sent);
    int32_t window = (int32_t)(sender->window_limit - terms->next_outgoing - (uint32_t)sent * template->frames);
    if (credit <= 0 || window < (int32_t)template->frames) return 0;
    uint64_t left = in_flight - (sent - sender->settled);
    uint64_t by_window = (uint64_t)window / template->frames;
    if (left > (uint64_t)credit) left = (uint64_t)credit;
    return left < by_window ? left : by_window;
}

/* Sends up to `limit` deliveries with at most `in_flight` unsettled, for `seconds`; waits for the last settlement. */
int send_run(int fd, const Template *template, const Terms *terms, uint64_t in_flight, uint64_t limit, double seconds,
             Outcome *outcome) {
    size_t copies = template->size < OUTPUT_BYTES ? OUTPUT_BYTES / template->size : 1;
    uint8_t *out = malloc(copies * template->size);
    Input in = {.fd = fd, .data = malloc(INPUT_BYTES)};
    Sender sender = {0, terms->delivery_count + terms->credit, terms->next_outgoing + terms->window};
    for (size_t index = 0; index < copies; index++)
        memcpy(out + index * template->size, template->bytes, template->size);
    size_t out_begin = 0, out_end = 0;
    uint64_t sent = 0;
    int result = 0;
    double began = now_s();
    for (;;) {
        if (out_begin == out_end) {
            uint64_t more = sent < limit && now_s() - began < seconds ? room(&sender, template, terms, sent, in_flight) : 0;
            if (more > copies) more = copies;
            if (more > limit - sent) more = limit - sent;
            for (uint64_t index = 0; index < more; index++) {
                uint8_t *delivery = out + index * template->size;
                for (size_t place = 0; place < template->id_count; place++)
                    put_u32(delivery + template->id_places[place], terms->next_id + (uint32_t)(sent + index));
            }
            sent += more;
            out_begin = 0;
            out_end = more * template->size;
            if (!more && sender.settled == sent && (sent >= limit || now_s() - began >= seconds)) break;
        }
        if (out_begin < out_end) {
            ssize_t put = send(fd, out + out_begin, out_end - out_begin, MSG_DONTWAIT | MSG_NOSIGNAL);
            if (put > 0) out_begin += (size_t)put;
            else if (errno != EAGAIN && errno != EINTR) result = LOST;
        }
        ssize_t got = fill(&in);
        if (got < 0) result = LOST;
        if (!result) result = take_answers(&sender, &in);
        if (result) break;
        uint64_t may = out_begin < out_end ? 0 : sent < limit ? room(&sender, template, terms, sent, in_flight) : 0;
        int is_over = now_s() - began >= seconds;
        if (!got && (!may || is_over) && (sender.settled < sent || !is_over))
            if ((result = wait_for(fd, out_begin < out_end ? POLLIN | POLLOUT : POLLIN))) break;
    }
    outcome->seconds = now_s() - began;
    outcome->deliveries = sender.settled;
    free(in.data);
    free(out);
    return result;
}

/* A flow with every field in its widest encoding, so that three of them can be replaced. */
static size_t write_flow(uint8_t *at, const Terms *terms, uint32_t received) {
    static const uint8_t head[] = {2, 0, 0, 0, 0x00, 0x53, FLOW, 0xc0, 0, 11};
    uint8_t *begin = at;
    at += 4;
    memcpy(at, head, sizeof head);
    at[2] = terms->channel >> 8;
    at[3] = terms->channel & 0xff;
    uint8_t *list_size = at + 8;
    at += sizeof head;
    uint32_t fields[7] = {terms->next_incoming + received, FULL_WINDOW, terms->next_outgoing, FULL_WINDOW,
                          terms->handle, terms->delivery_count + received, terms->credit};
    for (int index = 0; index < 7; index++) {
        *at++ = 0x70;
        put_u32(at, fields[index]);
        at += 4;
    }
    static const uint8_t tail[] = {0x40, 0x42, 0x42, 0x40}; /* available, drain, echo, properties */
    memcpy(at, tail, sizeof tail);
    at += sizeof tail;
    *list_size = (uint8_t)(at - list_size - 1);
    put_u32(begin, (uint32_t)(at - begin));
    return (size_t)(at - begin);
}

static int grant(int fd, const Terms *terms, uint32_t received) {
    uint8_t flow[64];
    size_t size = write_flow(flow, terms, received);
    return send(fd, flow, size, MSG_NOSIGNAL) == (ssize_t)size ? 0 : LOST;
}

/* Receives up to `limit` settled single-frame deliveries, for `seconds` after the first, renewing credit at half. */
int receive_run(int fd, const Terms *terms, uint64_t limit, double seconds, Outcome *outcome) {
    Input in = {.fd = fd, .data = malloc(INPUT_BYTES)};
    uint32_t received = 0, granted_at = 0;
    double began = 0, last = 0;
    int result = grant(fd, terms, 0);
    while (!result && received < limit && (!received || last - began < seconds)) {
        ssize_t got = fill(&in);
        if (got < 0) result = LOST;
        if (!got) result = wait_for(fd, POLLIN);
        uint32_t size;
        int performative;
        while (!result && next_frame(&in, &size, &performative)) {
            if (performative == TRANSFER) received++;
            else if (performative == DETACH || performative == END || performative == CLOSE) result = ENDED_BY_PEER;
        }
        if (!result && received - granted_at >= terms->credit / 2) {
            result = grant(fd, terms, received);
            granted_at = received;
        }
        last = now_s();
        /* Time is measured from the first event, so that finding the position is not measured. */
        if (received && !began) began = last;
    }
    outcome->seconds = last - began;
    outcome->deliveries = received;
    free(in.data);
    return result;
}

/* Sends `count` deliveries, one each `interval_ns`, on one connection and receives them on another. The last eight
 * bytes of each are the time at which it was due, in this machine's order; `waits_ns` gets what it took from then. */
int latency_run(int send_fd, const Template *template, const Terms *send_terms, int receive_fd,
                const Terms *receive_terms, uint64_t interval_ns, uint64_t count, uint64_t *waits_ns) {
    uint8_t *out = malloc(template->size);
    memcpy(out, template->bytes, template->size);
    Input answers = {.fd = send_fd, .data = malloc(INPUT_BYTES)}, events = {.fd = receive_fd, .data = malloc(INPUT_BYTES)};
    Sender sender = {0, send_terms->delivery_count + send_terms->credit, send_terms->next_outgoing + send_terms->window};
    uint64_t sent = 0, received = 0, due = now_ns() + interval_ns;
    uint32_t granted_at = 0;
    int result = grant(receive_fd, receive_terms, 0);
    while (!result && received < count) {
        uint64_t now = now_ns();
        while (!result && sent < count && now >= due && room(&sender, template, send_terms, sent, UINT32_MAX)) {
            for (size_t place = 0; place < template->id_count; place++)
                put_u32(out + template->id_places[place], send_terms->next_id + (uint32_t)sent);
            memcpy(out + template->size - sizeof due, &due, sizeof due);
            if (send(send_fd, out, template->size, MSG_NOSIGNAL) != (ssize_t)template->size) result = LOST;
            sent++;
            due += interval_ns;
        }
        if (fill(&answers) < 0 || fill(&events) < 0) result = LOST;
        if (!result) result = take_answers(&sender, &answers);
        uint32_t size;
        int performative;
        const uint8_t *frame;
        now = now_ns();
        while (!result && received < count && (frame = next_frame(&events, &size, &performative))) {
            if (performative == TRANSFER) {
                uint64_t then;
                memcpy(&then, frame + size - sizeof then, sizeof then);
                waits_ns[received++] = now - then;
            } else if (performative == DETACH || performative == END || performative == CLOSE) {
                result = ENDED_BY_PEER;
            }
        }
        if (!result && received - granted_at >= receive_terms->credit / 2) {
            result = grant(receive_fd, receive_terms, (uint32_t)received);
            granted_at = (uint32_t)received;
        }
        if (result || received == count) break;
        struct pollfd waiting[2] = {{.fd = send_fd, .events = POLLIN}, {.fd = receive_fd, .events = POLLIN}};
        now = now_ns();
        uint64_t pause = sent == count ? (uint64_t)PATIENCE_MS * 1000000u : due > now ? due - now : 0;
        struct timespec timeout = {(time_t)(pause / 1000000000u), (long)(pause % 1000000000u)};
        if (ppoll(waiting, 2, &timeout, NULL) == 0 && sent == count) result = STALLED;
    }
    free(events.data);
    free(answers.data);
    free(out);
    return result;
}
