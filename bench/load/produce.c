/* A fast Kafka producer: it sends copies of one prepared request and reads only the beginning of each answer.
 *
 * The caller has connected and signed in. Requests are copies of a template in which the correlation id and the
 * partition are replaced, the partitions in turn; of each answer the length, the correlation id and the one error code
 * are read, since answers come in the order of the requests (Kafka protocol guide, "Network").
 *
 * A run ends after a number of seconds and waits for its last answer. Results are 0, or one of the negative codes
 * below. Built as a shared library by raw_kafka.py.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

enum { LOST = -1, REFUSED = -2, STALLED = -3, UNREADABLE = -4 };

#define LENGTH_BYTES 4
#define INPUT_BYTES (1 << 18)
/* A run fails when the peer has sent nothing for this long. */
#define PATIENCE_MS 10000

typedef struct {
    uint64_t requests;
    double seconds;
} Outcome;

typedef struct {
    const uint8_t *bytes;
    size_t size;
    size_t id_place;
    size_t partition_place;
    uint32_t partitions;
    size_t error_place; /* in an answer, from its correlation id */
} Template;

static double now_s(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
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

/* Handles complete answers and moves the rest to the front; returns their number, or a negative code. */
static int64_t take_answers(const Template *template, uint8_t *in, size_t *filled, uint32_t next_id) {
    int64_t taken = 0;
    size_t at = 0;
    while (*filled - at >= LENGTH_BYTES) {
        size_t size = get_u32(in + at);
        if (size < template->error_place + 2 || size + LENGTH_BYTES > INPUT_BYTES) return UNREADABLE;
        if (*filled - at < LENGTH_BYTES + size) break;
        const uint8_t *answer = in + at + LENGTH_BYTES;
        if (get_u32(answer) != next_id + (uint32_t)taken) return UNREADABLE;
        if (answer[template->error_place] || answer[template->error_place + 1]) return REFUSED;
        at += LENGTH_BYTES + size;
        taken++;
    }
    memmove(in, in + at, *filled - at);
    *filled -= at;
    return taken;
}

/* Produces for `seconds` with at most `in_flight` requests unanswered. */
int produce_run(int fd, const Template *template, uint32_t in_flight, double seconds, Outcome *outcome) {
    uint8_t *out = malloc(in_flight * template->size), *in = malloc(INPUT_BYTES);
    for (uint32_t index = 0; index < in_flight; index++)
        memcpy(out + index * template->size, template->bytes, template->size);
    size_t out_begin = 0, out_end = 0, filled = 0;
    uint64_t sent = 0, answered = 0;
    int result = 0;
    double began = now_s();
    for (;;) {
        int is_over = now_s() - began >= seconds;
        if (is_over && answered == sent) break;
        if (out_begin == out_end && !is_over) {
            uint64_t more = in_flight - (sent - answered);
            for (uint64_t index = 0; index < more; index++) {
                uint8_t *request = out + index * template->size;
                put_u32(request + template->id_place, (uint32_t)(sent + index));
                put_u32(request + template->partition_place, (uint32_t)((sent + index) % template->partitions));
            }
            sent += more;
            out_begin = 0;
            out_end = more * template->size;
        }
        if (out_begin < out_end) {
            ssize_t put = send(fd, out + out_begin, out_end - out_begin, MSG_DONTWAIT | MSG_NOSIGNAL);
            if (put > 0) out_begin += (size_t)put;
            else if (errno != EAGAIN && errno != EINTR) result = LOST;
        }
        struct pollfd waiting = {.fd = fd, .events = out_begin < out_end ? POLLIN | POLLOUT : POLLIN};
        if (!result && poll(&waiting, 1, PATIENCE_MS) <= 0) result = STALLED;
        if (!result && waiting.revents & (POLLIN | POLLHUP | POLLERR)) {
            ssize_t got = recv(fd, in + filled, INPUT_BYTES - filled, MSG_DONTWAIT);
            if (got > 0) filled += (size_t)got;
            else if (got == 0 || (errno != EAGAIN && errno != EINTR)) result = LOST;
            int64_t taken = result ? 0 : take_answers(template, in, &filled, (uint32_t)answered);
            if (taken < 0) result = (int)taken;
            else answered += (uint64_t)taken;
        }
        if (result) break;
    }
    outcome->seconds = now_s() - began;
    outcome->requests = answered;
    free(in);
    free(out);
    return result;
}
