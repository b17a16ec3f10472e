/*
 * bare.h: the ways.
 *
 *   line         one cache line in either direction: messages of at most 48 bytes, for round trips
 *   records      the same through a ring of 256 lines, for streams
 *   ring         the sender copies into a ring of 4 x 32 KiB while the receiver copies out of it
 *   one          the receiver copies from the sender's memory, which it has mapped
 *   both         receiver and sender copy a half each
 *   both_stream  the same with stores that bypass the caches
 *   kernel       process_vm_readv(2) by the receiver
 *   kernel_both  a half each; the sender copies by process_vm_writev(2)
 */
#include "bare.h"

#include "base/atomic.h"

#include <assert.h>
#include <errno.h>
#include <string.h>
#include <sys/uio.h>
#ifdef __x86_64__
#include <emmintrin.h>
#endif

enum { PAYLOAD = 48, RECORDS = 256, CHUNKS = 4, CHUNK = 32 << 10, STEP = 1 << 20, SHARED_HALF = 1024, WORD = 40 };

struct word {
    _Alignas(64) uint64_t value;
};

static void await(const struct word *word, uint64_t least)
{
    for (uint64_t i = 0; um_load_acquire_u64(&word->value) < least; i++)
        bare_relax(i);
}

/* ---- messages that wait for finish ---- */

static struct {
    unsigned char *buf;
    size_t len;
} wanted[BARE_BATCH];
static int wanted_count;

static void want(void *buf, size_t len)
{
    wanted[wanted_count].buf = buf;
    wanted[wanted_count++].len = len;
}

/* ---- lines ---- */

struct record {
    _Alignas(64) uint64_t number; /* from 1; written last */
    uint64_t acked;               /* how many records the sender of this one has received */
    unsigned char payload[PAYLOAD];
};

struct record_lane {
    struct record record[RECORDS];
    struct word taken; /* records received; read only if the records of the other direction have not said it */
};
static_assert(sizeof(struct record) == 64, "a cache line");
static_assert(sizeof(struct record_lane) <= BARE_ROOM, "");

static uint64_t records_sent, records_received, records_acked;

static void record_copy(void *to, const void *from, size_t len)
{
    if (len == sizeof(uint64_t))
        memcpy(to, from, sizeof(uint64_t));
    else
        memcpy(to, from, len);
}

static void record_send(const void *buf, size_t len, uint64_t records)
{
    struct record_lane *lane = (void *)bare_shared->room[bare_rank];
    if (len > PAYLOAD)
        link_refuse("messages of more than 48 bytes");
    if (records_sent - records_acked >= records) {
        await(&lane->taken, records_sent - records + 1);
        records_acked = um_load_acquire_u64(&lane->taken.value);
    }
    struct record *r = &lane->record[records_sent % records];
    record_copy(r->payload, buf, len);
    r->acked = records_received;
    um_store_release_u64(&r->number, ++records_sent);
}

static void records_receive(uint64_t records)
{
    struct record_lane *lane = (void *)bare_shared->room[1 - bare_rank];
    for (int i = 0; i < wanted_count; i++) {
        struct record *r = &lane->record[records_received % records];
        for (uint64_t n = 0; um_load_acquire_u64(&r->number) != records_received + 1; n++)
            bare_relax(n);
        record_copy(wanted[i].buf, r->payload, wanted[i].len);
        records_acked = r->acked > records_acked ? r->acked : records_acked;
        um_store_release_u64(&lane->taken.value, ++records_received);
    }
    wanted_count = 0;
}

static void line_send(const void *buf, size_t len)
{
    record_send(buf, len, 1);
}

static void line_finish(void)
{
    records_receive(1);
}

static void records_send(const void *buf, size_t len)
{
    record_send(buf, len, RECORDS);
}

static void records_finish(void)
{
    records_receive(RECORDS);
}

/* ---- a ring of chunks, two copies ---- */

struct chunk_lane {
    struct word full[CHUNKS]; /* bytes; 0: free */
    _Alignas(64) unsigned char chunk[CHUNKS][CHUNK];
};
static_assert(sizeof(struct chunk_lane) <= BARE_ROOM, "");

static uint32_t chunks_sent, chunks_received;

static void chunk_await(const struct word *word, uint64_t value)
{
    for (uint64_t i = 0; um_load_acquire_u64(&word->value) != value; i++)
        bare_relax(i);
}

static void ring_send(const void *buf, size_t len)
{
    struct chunk_lane *lane = (void *)bare_shared->room[bare_rank];
    const unsigned char *from = buf;
    for (size_t part; len > 0; from += part, len -= part, chunks_sent++) {
        uint32_t at = chunks_sent % CHUNKS;
        part = len < CHUNK ? len : CHUNK;
        chunk_await(&lane->full[at], 0);
        memcpy(lane->chunk[at], from, part);
        um_store_release_u64(&lane->full[at].value, part);
    }
}

static void ring_finish(void)
{
    struct chunk_lane *lane = (void *)bare_shared->room[1 - bare_rank];
    for (int i = 0; i < wanted_count; i++) {
        unsigned char *to = wanted[i].buf;
        for (size_t left = wanted[i].len, part; left > 0; to += part, left -= part, chunks_received++) {
            uint32_t at = chunks_received % CHUNKS;
            part = left < CHUNK ? left : CHUNK;
            chunk_await(&lane->full[at], part);
            memcpy(to, lane->chunk[at], part);
            um_store_release_u64(&lane->full[at].value, 0);
        }
    }
    wanted_count = 0;
}

/* ---- one copy, by the receiver or by both ---- */

struct place {
    _Alignas(64) uint64_t number; /* from 1; written last */
    unsigned char *buf;
    size_t len;
    unsigned char word[WORD]; /* a message this short travels here: the other process may not have mapped its buffer */
};
static_assert(sizeof(struct place) == 64, "a cache line");

struct copy_lane {
    struct place offer[BARE_BATCH]; /* the sender's buffers */
    struct place want[BARE_BATCH];  /* the receiver's buffers, if the sender copies, too */
    struct word helped, taken;      /* messages whose part the sender (helped), the receiver (taken) has copied */
};
static_assert(sizeof(struct copy_lane) <= BARE_ROOM, "");

typedef void copy_fn(unsigned char *to, const unsigned char *from, size_t len);
static uint64_t copies_sent, copies_helped, copies_wanted, copies_received;

static void place_tell(struct place *p, uint64_t number, const void *buf, size_t len)
{
    p->buf = (unsigned char *)(uintptr_t)buf;
    p->len = len;
    if (len <= WORD)
        memcpy(p->word, buf, len);
    um_store_release_u64(&p->number, number);
}

static const struct place *place_await(const struct place *p, uint64_t number)
{
    for (uint64_t i = 0; um_load_acquire_u64(&p->number) != number; i++)
        bare_relax(i);
    return p;
}

/* Returns the length of the receiver's part, which is the first one. */
static size_t first_part(size_t len)
{
    return len < SHARED_HALF ? len : len / 2;
}

static void copy_send(const void *buf, size_t len)
{
    struct copy_lane *lane = (void *)bare_shared->room[bare_rank];
    if (copies_sent >= BARE_BATCH)
        await(&lane->taken, copies_sent - BARE_BATCH + 1);
    place_tell(&lane->offer[copies_sent % BARE_BATCH], copies_sent + 1, buf, len);
    copies_sent++;
}

static void both_want(void *buf, size_t len)
{
    struct copy_lane *lane = (void *)bare_shared->room[1 - bare_rank];
    place_tell(&lane->want[copies_wanted % BARE_BATCH], copies_wanted + 1, buf, len);
    copies_wanted++;
    want(buf, len);
}

/* Copies the sender's parts. */
static void both_help(copy_fn *push)
{
    struct copy_lane *lane = (void *)bare_shared->room[bare_rank];
    while (copies_helped < copies_sent) {
        uint32_t at = copies_helped % BARE_BATCH;
        const struct place *want_at = place_await(&lane->want[at], copies_helped + 1), *offer = &lane->offer[at];
        size_t first = first_part(offer->len);
        if (first < offer->len)
            push(want_at->buf + first, offer->buf + first, offer->len - first);
        um_store_release_u64(&lane->helped.value, ++copies_helped);
    }
}

static void copies_receive(copy_fn *pull, bool both)
{
    struct copy_lane *lane = (void *)bare_shared->room[1 - bare_rank];
    for (int i = 0; i < wanted_count; i++) {
        uint32_t at = copies_received % BARE_BATCH;
        const struct place *offer = place_await(&lane->offer[at], copies_received + 1);
        if (offer->len <= WORD)
            memcpy(wanted[i].buf, offer->word, offer->len);
        else
            pull(wanted[i].buf, offer->buf, both ? first_part(offer->len) : offer->len);
        copies_received++;
        if (both)
            await(&lane->helped, copies_received);
        um_store_release_u64(&lane->taken.value, copies_received);
    }
    wanted_count = 0;
}

static void copy_finish(copy_fn *pull, copy_fn *push)
{
    struct copy_lane *lane = (void *)bare_shared->room[bare_rank];
    if (push)
        both_help(push);
    copies_receive(pull, push != NULL);
    await(&lane->taken, copies_sent);
}

static void plain(unsigned char *to, const unsigned char *from, size_t len)
{
    memcpy(to, from, len);
}

static void stream(unsigned char *to, const unsigned char *from, size_t len)
{
#ifdef __x86_64__
    size_t head = -(uintptr_t)to & 15;
    if (len > 64) {
        memcpy(to, from, head);
        for (to += head, from += head, len -= head; len >= 16; to += 16, from += 16, len -= 16)
            _mm_stream_si128((__m128i *)(void *)to, _mm_loadu_si128((const __m128i *)(const void *)from));
        _mm_sfence();
    }
    memcpy(to, from, len);
#else
    (void)to, (void)from, (void)len;
    link_refuse("stores that bypass the caches, on this processor");
#endif
}

static void kernel(unsigned char *here, const unsigned char *there, size_t len, bool write)
{
    for (size_t at = 0, part; at < len; at += part) {
        part = len - at < STEP ? len - at : STEP;
        struct iovec mine = {here + at, part}, other = {(unsigned char *)(uintptr_t)there + at, part};
        pid_t pid = bare_shared->pid[1 - bare_rank];
        ssize_t ret =
            write ? process_vm_writev(pid, &mine, 1, &other, 1, 0) : process_vm_readv(pid, &mine, 1, &other, 1, 0);
        if (ret != (ssize_t)part)
            link_fail("the system's copy: %s", strerror(errno));
    }
}

static void kernel_pull(unsigned char *to, const unsigned char *from, size_t len)
{
    kernel(to, from, len, false);
}

static void kernel_push(unsigned char *to, const unsigned char *from, size_t len)
{
    kernel((unsigned char *)(uintptr_t)from, to, len, true);
}

static void one_finish(void)
{
    copy_finish(plain, NULL);
}

static void both_finish(void)
{
    copy_finish(plain, plain);
}

static void both_stream_finish(void)
{
    copy_finish(stream, stream);
}

static void kernel_finish(void)
{
    copy_finish(kernel_pull, NULL);
}

static void kernel_both_finish(void)
{
    copy_finish(kernel_pull, kernel_push);
}

const struct bare_way *bare_way_named(const char *name)
{
    static const struct bare_way all[] = {
        {"line", line_send, want, line_finish, false},
        {"records", records_send, want, records_finish, false},
        {"ring", ring_send, want, ring_finish, false},
        {"one", copy_send, want, one_finish, true},
        {"both", copy_send, both_want, both_finish, true},
        {"both_stream", copy_send, both_want, both_stream_finish, true},
        {"kernel", copy_send, want, kernel_finish, false},
        {"kernel_both", copy_send, both_want, kernel_both_finish, false},
    };
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        if (!strcmp(all[i].name, name))
            return &all[i];
    }
    return NULL;
}
