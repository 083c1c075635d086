/* Many connections with one request in flight each: after every answer the next request is sent on its connection.
 *
 * The caller has connected and signed in on every socket. A request is a copy of one template in which a number is
 * replaced; an answer is a frame that begins with its length. Of Kafka's answers the error code is read, of AMQP's frames
 * the performative: a disposition with the outcome accepted is the answer, flows are ignored.
 *
 * A run ends after a number of seconds and waits for the last answers. Results are 0, or one of the negative codes
 * below. Built as a shared library by lockstep.py.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { LOST = -1, REFUSED = -2, STALLED = -3, UNREADABLE = -4 };
enum { KAFKA = 0, AMQP = 1, ECHO = 2 };
enum { FLOW = 0x13, DISPOSITION = 0x15, ACCEPTED = 0x24 };

#define INPUT_BYTES 4096
#define EVENTS 512
/* A run fails when no peer has sent anything for this long. */
#define PATIENCE_MS 10000

typedef struct {
    const uint8_t *bytes;
    size_t size;
    const uint32_t *id_places;
    size_t id_count;
    int protocol;
    size_t error_place; /* in an answer of Kafka, from its beginning */
} Template;

typedef struct {
    uint64_t requests;
    double seconds;
    uint64_t waits; /* how many entries of waits_ns were filled */
} Outcome;

typedef struct {
    int fd;
    uint32_t next_id;
    uint64_t sent_ns;
    int is_waiting;
    size_t filled;
    uint8_t in[INPUT_BYTES];
} Peer;

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

static int send_request(Peer *peer, const Template *template, uint8_t *out) {
    for (size_t place = 0; place < template->id_count; place++) put_u32(out + template->id_places[place], peer->next_id);
    peer->next_id++;
    peer->is_waiting = 1;
    peer->sent_ns = now_ns();
    return send(peer->fd, out, template->size, MSG_NOSIGNAL) == (ssize_t)template->size ? 0 : LOST;
}

/* Returns 1 for an answer, 0 for another frame, or a negative code. */
static int judge(const Template *template, const uint8_t *frame, size_t size) {
    if (template->protocol == ECHO) return 1;
    if (template->protocol == KAFKA) {
        if (size < template->error_place + 2) return UNREADABLE;
        return frame[template->error_place] || frame[template->error_place + 1] ? REFUSED : 1;
    }
    if (size < 12 || frame[9] != 0x53 || frame[10] == FLOW) return size == 8 || frame[10] == FLOW ? 0 : UNREADABLE;
    if (frame[10] != DISPOSITION) return LOST;
    /* The outcome is a described list in the frame; only the byte of its code is read. */
    for (size_t at = 11; at + 2 < size; at++)
        if (frame[at] == 0 && frame[at + 1] == 0x53) return frame[at + 2] == ACCEPTED ? 1 : REFUSED;
    return UNREADABLE;
}

/* Reads the available bytes; returns 1 when the answer is complete, 0 when not, or a negative code. */
static int receive(Peer *peer, const Template *template) {
    ssize_t got = recv(peer->fd, peer->in + peer->filled, INPUT_BYTES - peer->filled, MSG_DONTWAIT);
    if (got <= 0) return got < 0 && (errno == EAGAIN || errno == EINTR) ? 0 : LOST;
    peer->filled += (size_t)got;
    size_t at = 0;
    int result = 0;
    while (result >= 0 && peer->filled - at >= 4) {
        size_t size = get_u32(peer->in + at) + (template->protocol == AMQP ? 0 : 4);
        if (size > INPUT_BYTES || size < 4) return UNREADABLE;
        if (peer->filled - at < size) break;
        int verdict = judge(template, peer->in + at, size);
        if (verdict) result = verdict;
        at += size;
    }
    memmove(peer->in, peer->in + at, peer->filled - at);
    peer->filled -= at;
    return result;
}

/* Drives `count` sockets for `seconds`; `next_ids` are the numbers of their next requests, before and after. The
 * latency of an answer begins with its request, or at the time in `since_ns` if that is given: another thread writes
 * there when it has published the event for which the requests wait. */
int lockstep_run(const int *fds, uint32_t *next_ids, uint32_t count, const Template *template, double seconds,
                 const volatile uint64_t *since_ns, uint64_t *waits_ns, uint64_t max_waits, Outcome *outcome) {
    Peer *peers = calloc(count, sizeof(Peer));
    uint8_t *out = malloc(template->size);
    memcpy(out, template->bytes, template->size);
    int poller = epoll_create1(0), result = 0;
    uint64_t began = now_ns(), until = began + (uint64_t)(seconds * 1e9), answered = 0, waiting = 0;
    for (uint32_t index = 0; index < count && !result; index++) {
        struct epoll_event event = {.events = EPOLLIN, .data.ptr = peers + index};
        peers[index].fd = fds[index];
        peers[index].next_id = next_ids[index];
        epoll_ctl(poller, EPOLL_CTL_ADD, fds[index], &event);
        result = send_request(peers + index, template, out);
        waiting++;
    }
    struct epoll_event events[EVENTS];
    while (!result && waiting) {
        int ready = epoll_wait(poller, events, EVENTS, PATIENCE_MS);
        if (ready <= 0) result = STALLED;
        for (int index = 0; index < ready && !result; index++) {
            Peer *peer = events[index].data.ptr;
            int got = receive(peer, template);
            if (got < 0) result = got;
            if (got != 1 || !peer->is_waiting) continue;
            uint64_t now = now_ns();
            if (outcome->waits < max_waits) waits_ns[outcome->waits++] = now - (since_ns ? *since_ns : peer->sent_ns);
            answered++;
            if (now < until) {
                result = send_request(peer, template, out);
            } else {
                peer->is_waiting = 0;
                waiting--;
            }
        }
    }
    for (uint32_t index = 0; index < count; index++) next_ids[index] = peers[index].next_id;
    outcome->seconds = (double)(now_ns() - began) / 1e9;
    outcome->requests = answered;
    close(poller);
    free(out);
    free(peers);
    return result;
}
