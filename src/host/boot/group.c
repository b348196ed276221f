/* group.c - collectives of all ranks or a group, in log2 steps: dissemination barrier, Bruck's allgather, binomial
 * broadcast. In each step k a rank sends to the rank 2^k places after it.
 *
 * Each message carries the operation, its number within the group, bytes and root. Messages between two ranks arrive in
 * the order of the operations. So the first message of the group in the inbox is the expected one, or it shows that the
 * two ranks called different operations. A collective that fails on one rank fails on all ranks of the group, as do all
 * later ones, because the ranks are out of step.
 *
 * A rank that waits in vain may wait for a rank that itself waits. At the deadline it asks the service thread of the
 * rank that sent nothing, then that of the rank for which that one waits, and so on. The chain ends at a rank that has
 * not called the operation or does not answer; the error names it. In create a rank has few connections and asks only
 * those ranks. It then waits a little for announcements of the neighbours of the missing rank. */
#include <sodium.h>
#include <stdio.h>
#include <string.h>

#include "src/host/base/alloc.h"
#include "src/host/base/clock.h"
#include "src/host/base/error.h"
#include "src/host/boot/bootstrap.h"

#define HEAD_BYTES 32
#define CAUSE_NS 500000000u
#define ANSWER_NS 1500000000u       /* how long a service thread may take to answer */
#define NOT_CALLED (UINT32_MAX - 1) /* an answer: the rank has not begun the operation */

enum { OP_BARRIER = 1, OP_ALLGATHER, OP_BROADCAST };

/* One collective while it runs. */
typedef struct run {
    weir_bootstrap *boot;
    weiri_group_state *state;
    const uint32_t *ranks; /* NULL: all */
    uint32_t count;
    uint32_t position;
    uint32_t culprit; /* a rank that called another operation, or WEIRI_NO_RANK */
    uint64_t failed_at;
    uint64_t deadline_ns;
    weiri_group_call call;
} run;

static void describe(const weiri_group_call *c, char text[128])
{
    switch (c->op) {
    case OP_ALLGATHER:
        (void)snprintf(text, 128, "allgather of %llu bytes", (unsigned long long)c->bytes);
        break;
    case OP_BROADCAST:
        (void)snprintf(text, 128, "broadcast of %llu bytes from rank %u", (unsigned long long)c->bytes, c->root);
        break;
    default:
        (void)snprintf(text, 128, "barrier");
    }
}

/* The beginning of error texts that all ranks of the group receive. */
static void name_operation(const run *r, char text[160])
{
    char operation[128];
    describe(&r->call, operation);
    (void)snprintf(text, 160, "bootstrap: %s", operation);
}

static uint32_t rank_at(const run *r, uint64_t position)
{
    const uint32_t i = (uint32_t)(position % r->count);
    return r->ranks == NULL ? i : r->ranks[i];
}

/* 0 for all ranks; never 0 for fewer. */
static uint64_t hash_ranks(const uint32_t *ranks, uint32_t count)
{
    crypto_generichash_state state;
    uint8_t hash[crypto_generichash_BYTES_MIN];
    (void)crypto_generichash_init(&state, NULL, 0, sizeof hash);
    for (uint32_t i = 0; i < count; i++) {
        const uint8_t bytes[4] = { (uint8_t)ranks[i], (uint8_t)(ranks[i] >> 8), (uint8_t)(ranks[i] >> 16),
                                   (uint8_t)(ranks[i] >> 24) };
        (void)crypto_generichash_update(&state, bytes, sizeof bytes);
    }
    (void)crypto_generichash_final(&state, hash, sizeof hash);
    weiri_reader r = weiri_reader_init(hash, sizeof hash);
    const uint64_t value = weiri_read_u64(&r);
    return value == 0 ? 1 : value;
}

static weiri_group_state *find_state(weir_bootstrap *boot, uint64_t hash)
{
    weiri_group_state *state = boot->groups;
    while (state != NULL && state->hash != hash) {
        state = state->next;
    }
    if (state == NULL) {
        state = (weiri_group_state *)weiri_alloc(1, sizeof *state);
        if (state != NULL) {
            state->hash = hash;
            state->waits_for = WEIRI_NO_RANK;
            state->sequence = hash == 0 ? 0 : 1; /* operation 0 of all ranks is the allgather in create */
            state->next = boot->groups;
            boot->groups = state;
        }
    }
    return state;
}

static void set_failed(weir_bootstrap *boot, weiri_group_state *state, uint64_t at, weir_status status,
                       const char *text)
{
    if (state->failed_status == WEIR_OK || at < state->failed_at) {
        state->failed_at = at;
        state->failed_status = status;
        (void)snprintf(state->failed_text, sizeof state->failed_text, "%s", text);
        weiri_boot_signal(boot);
    }
}

void weiri_group_abort(weir_bootstrap *boot, weiri_message *message)
{
    char text[WEIRI_TEXT_BYTES];
    weiri_reader r = weiri_reader_init(message->data, message->bytes);
    const uint64_t at = weiri_read_u64(&r);
    const int32_t status = (int32_t)weiri_read_u32(&r);
    weiri_read_string(&r, text, sizeof text);
    if (weiri_reader_done(&r) && status < 0 && status > WEIR_STATUS_FIRST_UNUSED) {
        weiri_group_state *state = find_state(boot, message->tag);
        if (state == NULL) {
            weiri_boot_fail(boot, WEIR_ERR_NOMEM, "bootstrap: out of memory for a message");
        } else {
            set_failed(boot, state, at, (weir_status)status, text);
        }
    }
    weiri_message_free(message);
}

weir_status weiri_group_failure(const weir_bootstrap *boot)
{
    const weiri_group_state *state = boot->groups;
    while (state != NULL && state->hash != 0) {
        state = state->next;
    }
    return state == NULL || state->failed_status == WEIR_OK
               ? WEIR_OK
               : weiri_fail(state->failed_status, "%s", state->failed_text);
}

static weir_status check_group(const weir_bootstrap *boot, const char *call, const weir_group *group, run *r)
{
    r->count = boot->size;
    r->position = boot->rank;
    if (group == NULL) {
        return WEIR_OK;
    }
    bool member = false;
    for (uint32_t i = 0; i < group->count && group->ranks != NULL; i++) {
        if (group->ranks[i] >= boot->size || (i > 0 && group->ranks[i] <= group->ranks[i - 1])) {
            return weiri_fail(WEIR_ERR_INVALID, "%s: group: rank %u at %u is not ascending or not below %u", call,
                              group->ranks[i], i, boot->size);
        }
        if (group->ranks[i] == boot->rank) {
            member = true;
            r->position = i;
        }
    }
    if (!member) {
        return weiri_fail(WEIR_ERR_INVALID, "%s: the group does not contain this rank, %u", call, boot->rank);
    }
    r->count = group->count;
    r->ranks = group->count == boot->size ? NULL : group->ranks;
    return WEIR_OK;
}

/* Checks the call and takes the next number of the group. On success the mutex is held afterwards. */
static weir_status begin(weir_bootstrap *boot, const char *call, const weir_group *group, uint32_t op, const void *data,
                         uint64_t bytes, uint32_t root, run *r)
{
    memset(r, 0, sizeof *r);
    weir_status status = weiri_boot_check(boot, call);
    if (status != WEIR_OK) {
        return status;
    }
    status = check_group(boot, call, group, r);
    if (status != WEIR_OK) {
        return status;
    }
    if (data == NULL && bytes > 0) {
        return weiri_fail_null(call, "data");
    }
    if (bytes > WEIRI_MESSAGE_MAX / 2 / r->count) {
        return weiri_fail(WEIR_ERR_LIMIT, "%s: %llu bytes from each of %u ranks are too many", call,
                          (unsigned long long)bytes, r->count);
    }
    r->boot = boot;
    r->culprit = WEIRI_NO_RANK;
    r->deadline_ns = weiri_deadline(boot->timeout_ms);
    const uint64_t hash = r->ranks == NULL ? 0 : hash_ranks(r->ranks, r->count);
    (void)pthread_mutex_lock(&boot->mutex);
    r->state = find_state(boot, hash);
    if (boot->failure.status != WEIR_OK || r->state == NULL) {
        status = boot->failure.status != WEIR_OK ? weiri_boot_error(boot) : weiri_fail_nomem("bootstrap");
        (void)pthread_mutex_unlock(&boot->mutex);
        return status;
    }
    r->call = (weiri_group_call){ op, root, r->state->sequence++, bytes };
    r->failed_at = r->call.sequence;
    r->state->last = r->call;
    r->state->running++;
    return WEIR_OK;
}

/* Names both calls, the lower rank first: both ranks write the same text. Returns the first operation in which they
 * differ. */
static uint64_t describe_mismatch(uint32_t rank, const weiri_group_call *ours, uint32_t peer,
                                  const weiri_group_call *theirs, char text[WEIRI_TEXT_BYTES])
{
    const bool first = rank < peer;
    const weiri_group_call *low = first ? ours : theirs;
    const weiri_group_call *high = first ? theirs : ours;
    char low_text[128];
    char high_text[128];
    char number[48] = "";
    describe(low, low_text);
    describe(high, high_text);
    if (low->sequence != high->sequence) {
        (void)snprintf(number, sizeof number, " as operation %llu", (unsigned long long)high->sequence);
    }
    (void)snprintf(text, WEIRI_TEXT_BYTES, "bootstrap: rank %u called %s as operation %llu, rank %u called %s%s",
                   first ? rank : peer, low_text, (unsigned long long)low->sequence, first ? peer : rank, high_text,
                   number);
    return low->sequence < high->sequence ? low->sequence : high->sequence;
}

static weir_status mismatch(run *r, uint32_t peer, const weiri_group_call *theirs)
{
    char text[WEIRI_TEXT_BYTES];
    r->failed_at = describe_mismatch(r->boot->rank, &r->call, peer, theirs, text);
    r->culprit = peer;
    return weiri_fail(WEIR_ERR_MISMATCH, "%s", text);
}

static weiri_group_call read_call(weiri_reader *r)
{
    weiri_group_call c;
    c.op = weiri_read_u32(r);
    c.root = weiri_read_u32(r);
    c.sequence = weiri_read_u64(r);
    c.bytes = weiri_read_u64(r);
    return c;
}

void weiri_group_arrived(weir_bootstrap *boot, const weiri_message *message)
{
    char text[WEIRI_TEXT_BYTES];
    weiri_reader r = weiri_reader_init(message->data, message->bytes);
    const weiri_group_call theirs = read_call(&r);
    weiri_group_state *state = boot->groups;
    while (state != NULL && state->hash != message->tag) {
        state = state->next;
    }
    if (state != NULL && !r.failed && state->running == 0 && theirs.sequence < state->sequence) {
        const uint64_t at = describe_mismatch(boot->rank, &state->last, message->peer, &theirs, text);
        set_failed(boot, state, at, WEIR_ERR_MISMATCH, text);
    }
}

/* A message of an operation that is over shows that its sender called another one. Such messages come only from ranks
 * that send to this one. */
static weir_status find_stray(run *r)
{
    for (uint64_t step = 1; step < r->count; step *= 2) {
        const uint32_t peer = rank_at(r, r->position + r->count - step);
        const weiri_message *message = r->boot->peers[peer].inbox.head;
        while (message != NULL && (message->kind != WEIRI_FRAME_COLLECTIVE || message->tag != r->state->hash)) {
            message = message->next;
        }
        if (message != NULL) {
            weiri_reader reader = weiri_reader_init(message->data, message->bytes);
            const weiri_group_call theirs = read_call(&reader);
            if (!reader.failed && theirs.sequence <= r->call.sequence) {
                return mismatch(r, peer, &theirs);
            }
        }
    }
    return WEIR_OK;
}

/* During create a rank knows few addresses and can connect to no other rank. */
static bool has_address(const weir_bootstrap *boot, uint32_t peer) { return boot->peers[peer].address.family != 0; }

/* Announces the failure of the operation to the ranks after this one, which pass it on when theirs fails, and to the
 * rank that called another operation. */
static void announce(run *r, weir_status status)
{
    weir_bootstrap *boot = r->boot;
    uint8_t data[8 + 4 + 2 + WEIRI_TEXT_BYTES];
    weiri_writer w = weiri_writer_init(data, sizeof data);
    weiri_write_u64(&w, r->failed_at);
    weiri_write_u32(&w, (uint32_t)status);
    weiri_write_string(&w, r->state->failed_text);
    for (uint64_t step = 1; step < r->count; step *= 2) {
        const uint32_t rank = rank_at(r, r->position + step);
        (void)weiri_boot_queue(boot, rank, WEIRI_FRAME_ABORT, r->state->hash, &w, NULL, 0, NULL);
    }
    if (r->culprit != WEIRI_NO_RANK && has_address(boot, r->culprit)) {
        (void)weiri_boot_queue(boot, r->culprit, WEIRI_FRAME_ABORT, r->state->hash, &w, NULL, 0, NULL);
    }
}

/* Ends the collective and releases the mutex. */
static weir_status end(run *r, weir_status status)
{
    weir_bootstrap *boot = r->boot;
    r->state->running--;
    status = status == WEIR_OK ? find_stray(r) : status;
    if (status != WEIR_OK && boot->failure.status == WEIR_OK) {
        char text[WEIRI_TEXT_BYTES];
        (void)snprintf(text, sizeof text, "%s", weir_last_error());
        set_failed(boot, r->state, r->failed_at, status, text);
        announce(r, status);
        (void)weiri_fail(status, "%s", text);
    }
    (void)pthread_mutex_unlock(&boot->mutex);
    return status;
}

/* A rank that this one must send to has left. If the operation failed there, the news of the cause is on its way
 * through the group and says more. */
static weir_status wait_cause(const run *r)
{
    weir_bootstrap *boot = r->boot;
    const weiri_group_state *state = r->state;
    const uint64_t news = weiri_now_ns() + CAUSE_NS;
    const uint64_t limit = news < r->deadline_ns ? news : r->deadline_ns;
    while (state->failed_status == WEIR_OK && boot->failure.status == WEIR_OK &&
           weiri_cond_wait(&boot->cond, &boot->mutex, limit)) {
    }
    if (state->failed_status != WEIR_OK && state->failed_at <= r->call.sequence) {
        return weiri_fail(state->failed_status, "%s", state->failed_text);
    }
    return boot->failure.status == WEIR_OK ? WEIR_ERR_REMOTE : weiri_boot_error(boot);
}

static weir_status send_step(run *r, uint64_t position, uint32_t step, const void *data, uint64_t bytes)
{
    uint8_t head[HEAD_BYTES];
    weiri_writer w = weiri_writer_init(head, sizeof head);
    weiri_write_u32(&w, r->call.op);
    weiri_write_u32(&w, r->call.root);
    weiri_write_u64(&w, r->call.sequence);
    weiri_write_u64(&w, r->call.bytes);
    weiri_write_u64(&w, step);
    char what[160];
    name_operation(r, what);
    const uint32_t peer = rank_at(r, position);
    weir_status status =
        weiri_boot_wait_room(r->boot, peer, WEIRI_FRAME_COLLECTIVE, r->state, r->call.sequence, what, r->deadline_ns);
    if (status != WEIR_OK) {
        return status;
    }
    status = weiri_boot_queue(r->boot, peer, WEIRI_FRAME_COLLECTIVE, r->state->hash, &w, data, bytes, NULL);
    return status == WEIR_ERR_REMOTE ? wait_cause(r) : status;
}

bool weiri_group_asked(weiri_conn *conn, const weiri_message *message)
{
    weir_bootstrap *boot = conn->boot;
    weiri_reader reader = weiri_reader_init(message->data, message->bytes);
    const uint64_t sequence = weiri_read_u64(&reader);
    const weiri_group_state *state = boot->groups;
    uint8_t data[8 + 4];
    if (!weiri_reader_done(&reader)) {
        return false;
    }
    while (state != NULL && state->hash != message->tag) {
        state = state->next;
    }
    const bool begun = state != NULL && state->sequence > sequence;
    const bool waits = begun && state->running > 0 && state->last.sequence == sequence;
    uint32_t answer = waits ? state->waits_for : WEIRI_NO_RANK;
    if (!begun) {
        /* Before the allgather in create this rank waits for a neighbour. */
        answer = boot->join.complete || sequence != 0 ? NOT_CALLED : weiri_peer_find_unconnected(boot);
    }
    weiri_writer w = weiri_writer_init(data, sizeof data);
    weiri_write_u64(&w, sequence);
    weiri_write_u32(&w, answer);
    weiri_conn_queue(conn, weiri_message_create(WEIRI_FRAME_ANSWER, message->tag, data, w.size, NULL, 0));
    return true;
}

bool weiri_group_answered(weir_bootstrap *boot, const weiri_message *message)
{
    weiri_peer *peer = &boot->peers[message->peer];
    weiri_reader reader = weiri_reader_init(message->data, message->bytes);
    (void)weiri_read_u64(&reader); /* a late answer comes from the same rank and is still true */
    const uint32_t answer = weiri_read_u32(&reader);
    if (!weiri_reader_done(&reader) || (answer >= boot->size && answer != NOT_CALLED && answer != WEIRI_NO_RANK)) {
        return false;
    }
    peer->answer = answer;
    peer->answered = true;
    weiri_boot_signal(boot);
    return true;
}

/* True when `peer` can be asked. In create it may have connected to this rank although its address is unknown. */
static bool is_in_reach(const weir_bootstrap *boot, uint32_t peer)
{
    return has_address(boot, peer) || boot->peers[peer].in != NULL;
}

static bool send_ask(run *r, uint32_t peer)
{
    weir_bootstrap *boot = r->boot;
    uint8_t data[8];
    weiri_writer w = weiri_writer_init(data, sizeof data);
    weiri_write_u64(&w, r->call.sequence);
    if (has_address(boot, peer)) {
        return weiri_boot_queue(boot, peer, WEIRI_FRAME_ASK, r->state->hash, &w, NULL, 0, NULL) == WEIR_OK;
    }
    weiri_conn_queue(boot->peers[peer].in,
                     weiri_message_create(WEIRI_FRAME_ASK, r->state->hash, data, w.size, NULL, 0));
    return true;
}

/* Asks `peer` which rank it waits for. False when `peer` cannot be asked or does not answer; the collective may have
 * failed meanwhile. */
static bool ask(run *r, uint32_t peer)
{
    weir_bootstrap *boot = r->boot;
    weiri_peer *p = &boot->peers[peer];
    p->answered = false;
    if (!is_in_reach(boot, peer)) {
        return false;
    }
    const uint64_t limit = weiri_now_ns() + ANSWER_NS;
    bool waiting = send_ask(r, peer);
    while (waiting && !p->answered && p->state == WEIRI_PEER_ALIVE && boot->failure.status == WEIR_OK &&
           r->state->failed_status == WEIR_OK) {
        waiting = weiri_cond_wait(&boot->cond, &boot->mutex, limit);
    }
    return p->answered;
}

/* `peer` sent nothing before the deadline. The text names the rank that all others wait for. */
static weir_status find_missing(run *r, uint32_t peer, const char *what)
{
    weir_bootstrap *boot = r->boot;
    bool answered = ask(r, peer);
    for (uint32_t hops = 0; answered && hops < r->count; hops++) {
        const uint32_t next = boot->peers[peer].answer;
        if (next >= boot->size || next == boot->rank) {
            break;
        }
        peer = next;
        answered = ask(r, peer);
    }
    /* In create `peer` may itself wait for a rank whose absence is about to be announced. */
    const uint64_t limit = weiri_now_ns() + ANSWER_NS;
    bool waiting = !boot->join.complete && (answered || !is_in_reach(boot, peer));
    while (waiting && boot->failure.status == WEIR_OK && r->state->failed_status == WEIR_OK) {
        waiting = weiri_cond_wait(&boot->cond, &boot->mutex, limit);
    }
    if (boot->failure.status != WEIR_OK) {
        return weiri_boot_error(boot);
    }
    if (r->state->failed_status != WEIR_OK && r->state->failed_at <= r->call.sequence) {
        return weiri_fail(r->state->failed_status, "%s", r->state->failed_text);
    }
    const weiri_peer *p = &boot->peers[peer];
    if (p->state != WEIRI_PEER_ALIVE || p->goodbye_ns != 0) {
        return weiri_fail(WEIR_ERR_REMOTE, "%s: rank %u left", what, peer);
    }
    if (!answered && has_address(boot, peer)) {
        return weiri_fail(WEIR_ERR_TIMEOUT,
                          "%s: timeout: rank %u does not answer (stopped, or its host is unreachable)", what, peer);
    }
    if (answered && p->answer == NOT_CALLED) {
        return weiri_fail(WEIR_ERR_TIMEOUT, "%s: timeout: rank %u has not called it", what, peer);
    }
    return weiri_fail(WEIR_ERR_TIMEOUT, "%s: timeout: nothing came from rank %u", what, peer);
}

static weir_status recv_step(run *r, uint64_t position, uint64_t step, void *data, uint64_t bytes)
{
    const uint32_t peer = rank_at(r, position);
    char what[160];
    weiri_message *message = NULL;
    name_operation(r, what);
    r->state->waits_for = peer;
    weir_status status = weiri_boot_wait(r->boot, peer, WEIRI_FRAME_COLLECTIVE, r->state->hash, r->state,
                                         r->call.sequence, what, r->deadline_ns, &message);
    if (status == WEIR_ERR_TIMEOUT && r->state->failed_status == WEIR_OK && peer != r->boot->rank) {
        status = find_missing(r, peer, what);
    }
    r->state->waits_for = WEIRI_NO_RANK;
    if (status != WEIR_OK) {
        return status;
    }
    weiri_reader reader = weiri_reader_init(message->data, message->bytes);
    const weiri_group_call theirs = read_call(&reader);
    const uint64_t their_step = weiri_read_u64(&reader);
    const uint64_t size = message->bytes - reader.at;
    if (reader.failed || theirs.op < OP_BARRIER || theirs.op > OP_BROADCAST) {
        status = weiri_fail(WEIR_ERR_CORRUPT, "%s: malformed message from rank %u", what, peer);
    } else if (theirs.op != r->call.op || theirs.root != r->call.root || theirs.sequence != r->call.sequence ||
               theirs.bytes != r->call.bytes) {
        status = mismatch(r, peer, &theirs);
    } else if (their_step != step || size != bytes) {
        status = weiri_fail(WEIR_ERR_CORRUPT, "%s: rank %u sent %llu bytes of step %llu, not %llu of %llu", what, peer,
                            (unsigned long long)size, (unsigned long long)their_step, (unsigned long long)bytes,
                            (unsigned long long)step);
    } else if (bytes > 0) {
        memcpy(data, message->data + reader.at, bytes);
    }
    weiri_message_free(message);
    return status;
}

static weir_status run_barrier(run *r)
{
    weir_status status = WEIR_OK;
    uint32_t step = 0;
    for (uint64_t distance = 1; distance < r->count && status == WEIR_OK; distance *= 2, step++) {
        r->boot->usage.rounds++;
        status = send_step(r, r->position + distance, step, NULL, 0);
        if (status == WEIR_OK) {
            status = recv_step(r, r->position + r->count - distance, step, NULL, 0);
        }
    }
    return status;
}

/* blocks[i] collects the contribution of the rank i places before this one. */
static weir_status run_allgather(run *r, uint8_t *data, uint64_t bytes)
{
    const uint64_t count = r->count;
    if (count == 1) {
        return WEIR_OK;
    }
    uint8_t *blocks = (uint8_t *)weiri_alloc(bytes > 0 ? count * bytes : 1, 1);
    if (blocks == NULL) {
        return weiri_fail(WEIR_ERR_NOMEM, "bootstrap: allgather: rank %u is out of memory", r->boot->rank);
    }
    if (bytes > 0) {
        memcpy(blocks, data + r->position * bytes, bytes);
    }
    weir_status status = WEIR_OK;
    uint32_t step = 0;
    for (uint64_t have = 1; have < count && status == WEIR_OK; have *= 2, step++) {
        const uint64_t more = have < count - have ? have : count - have;
        r->boot->usage.rounds++;
        status = send_step(r, r->position + have, step, blocks, more * bytes);
        if (status == WEIR_OK) {
            status = recv_step(r, r->position + count - have, step, blocks + have * bytes, more * bytes);
        }
    }
    for (uint64_t i = 0; i < count && bytes > 0 && status == WEIR_OK; i++) {
        memcpy(data + (r->position + count - i) % count * bytes, blocks + i * bytes, bytes);
    }
    weiri_free(blocks);
    return status;
}

/* In step k the 2^k ranks that have the data send it to 2^k others. Places are counted from the root. */
static weir_status run_broadcast(run *r, uint32_t root_position, void *data, uint64_t bytes)
{
    const uint64_t place = (r->position + (uint64_t)r->count - root_position) % r->count;
    weir_status status = WEIR_OK;
    uint32_t step = 0;
    for (uint64_t have = 1; have < r->count && status == WEIR_OK; have *= 2, step++) {
        if (place < have && place + have < r->count) {
            r->boot->usage.rounds++;
            status = send_step(r, r->position + have, step, data, bytes);
        } else if (place >= have && place < 2 * have) {
            r->boot->usage.rounds++;
            status = recv_step(r, r->position + r->count - have, step, data, bytes);
        }
    }
    return status;
}

weir_status weir_bootstrap_barrier(weir_bootstrap *boot, const weir_group *group)
{
    run r;
    const weir_status status = begin(boot, __func__, group, OP_BARRIER, NULL, 0, 0, &r);
    return status != WEIR_OK ? status : end(&r, run_barrier(&r));
}

weir_status weir_bootstrap_allgather(weir_bootstrap *boot, const weir_group *group, void *data, size_t bytes)
{
    run r;
    const weir_status status = begin(boot, __func__, group, OP_ALLGATHER, data, bytes, 0, &r);
    return status != WEIR_OK ? status : end(&r, run_allgather(&r, (uint8_t *)data, bytes));
}

weir_status weir_bootstrap_broadcast(weir_bootstrap *boot, const weir_group *group, void *data, size_t bytes,
                                     uint32_t root)
{
    run r;
    weir_status status = weiri_boot_check(boot, __func__);
    if (status != WEIR_OK) {
        return status;
    }
    const uint32_t count = group == NULL ? boot->size : group->count;
    uint32_t position = group == NULL ? root : 0;
    while (group != NULL && group->ranks != NULL && position < count && group->ranks[position] != root) {
        position++;
    }
    if (position >= count) {
        return weiri_fail(WEIR_ERR_INVALID, "%s: root %u is not in the group", __func__, root);
    }
    status = begin(boot, __func__, group, OP_BROADCAST, data, bytes, root, &r);
    return status != WEIR_OK ? status : end(&r, run_broadcast(&r, position, data, bytes));
}

weir_status weiri_group_join(weir_bootstrap *boot, uint8_t *data, uint64_t bytes, uint64_t deadline_ns)
{
    run r;
    const weir_status status = begin(boot, __func__, NULL, OP_ALLGATHER, data, bytes, 0, &r);
    if (status != WEIR_OK) {
        return status;
    }
    r.deadline_ns = deadline_ns;
    return end(&r, run_allgather(&r, data, bytes));
}

void weiri_bootstrap_refuse(weir_bootstrap *boot, weir_status status, const char *text)
{
    run r;
    if (begin(boot, __func__, NULL, OP_ALLGATHER, NULL, 0, 0, &r) == WEIR_OK) {
        (void)end(&r, weiri_fail(status, "%s", text));
    }
}
