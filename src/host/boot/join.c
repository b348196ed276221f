/* join.c - the rendezvous. Every rank connects to rank 0 and sends its number. When all are there, rank 0 sends each
 * rank the identity of the job and the addresses of the ranks 1, 2, 4, ... after it. Each rank connects to these. Over
 * these connections all ranks then exchange all addresses: no rank sends more than n log n of them. An error before
 * that ends the create of all ranks that came, with one text. */
#include <stdio.h>
#include <string.h>

#include <uuid/uuid.h>

#include "src/host/base/alloc.h"
#include "src/host/base/clock.h"
#include "src/host/base/error.h"
#include "src/host/base/log.h"
#include "src/host/boot/bootstrap.h"

#define HELLO_BYTES 27
#define ADDRESS_BYTES 19u
#define NEIGHBOURS_MAX 32u
#define LINGER_NS 1000000000u
#define LINGER_LATE_NS 3000000000u
#define SECOND_NS 1000000000u
#define PAUSE_FIRST_NS 10000000u
#define PAUSE_LAST_NS 200000000u
#define MISSING_NAMED 16
#define MOVED_NS 50000000u

static void write_address(weiri_writer *w, const weiri_address *address)
{
    weiri_write_bytes(w, address->ip, sizeof address->ip);
    weiri_write_u16(w, address->port);
    weiri_write_u8(w, address->family);
}

/* Scope ids are local to a host. So a link-local address is assumed to be on the link to rank 0. */
static bool read_address(weiri_reader *r, uint32_t scope, weiri_address *out)
{
    weiri_read_bytes(r, out->ip, sizeof out->ip);
    out->port = weiri_read_u16(r);
    out->family = weiri_read_u8(r);
    out->scope = out->family == 6 && out->ip[0] == 0xfe && (out->ip[1] & 0xc0) == 0x80 ? scope : 0;
    return !r->failed && out->port != 0 && (out->family == 4 || out->family == 6);
}

uint64_t weiri_join_frame_max(uint32_t kind)
{
    switch (kind) {
    case WEIRI_FRAME_TABLE:
        return WEIRI_JOB_BYTES + NEIGHBOURS_MAX * ADDRESS_BYTES;
    case WEIRI_FRAME_REFUSE:
        return 4 + 2 + WEIRI_TEXT_BYTES;
    default:
        return 0;
    }
}

static void set_over(weir_bootstrap *boot)
{
    boot->join.over = true;
    weiri_boot_signal(boot);
}

static void set_failed(weir_bootstrap *boot, weir_status status, const char *text)
{
    if (boot->join.failed == WEIR_OK) {
        boot->join.failed = status;
        (void)snprintf(boot->join.text, sizeof boot->join.text, "%s", text);
    }
}

/* Every rank knows its neighbours: connects to them, and accepts those that connected earlier. */
static void finish(weir_bootstrap *boot)
{
    boot->join.done = true;
    for (uint64_t step = 1; step < boot->size; step *= 2) {
        if (weiri_peer_connect(boot, (uint32_t)((boot->rank + step) % boot->size)) == NULL) {
            set_failed(boot, WEIR_ERR_NOMEM, "bootstrap: out of memory");
        }
    }
    for (weiri_conn *conn = boot->conns.first; conn != NULL;) {
        weiri_conn *next = conn->next;
        if (conn->state == WEIRI_CONN_HELD) {
            weiri_peer_accept(conn);
        }
        conn = next;
    }
    set_over(boot);
}

void weiri_join_start(weir_bootstrap *boot)
{
    weiri_join *join = &boot->join;
    join->pause_ns = PAUSE_FIRST_NS;
    if (boot->rank != 0 || join->taken[0] != '\0') {
        join->conn = weiri_conn_create(boot, WEIRI_NO_RANK, &boot->join.root);
        if (join->conn == NULL) {
            set_failed(boot, WEIR_ERR_NOMEM, "bootstrap: out of memory");
            set_over(boot);
            return;
        }
        join->conn->join = true;
    } else if (boot->size == 1) {
        uuid_generate_random(boot->job.id);
        finish(boot);
    } else {
        weiri_boot_hurry(boot); /* rank 0 decides the deadline of all ranks */
    }
}

size_t weiri_join_hello(weiri_conn *conn, uint8_t *frame, size_t capacity)
{
    weir_bootstrap *boot = conn->boot;
    uint8_t payload[HELLO_BYTES];
    weiri_writer p = weiri_writer_init(payload, sizeof payload);
    weiri_write_u32(&p, boot->size);
    weiri_write_u32(&p, weiri_left_ms(boot->join.deadline_ns));
    write_address(&p, &boot->peers[boot->rank].address);
    weiri_writer w = weiri_writer_init(frame, capacity);
    weiri_frame_write(&w, WEIRI_FRAME_JOIN, 0, payload, sizeof payload);
    uint8_t seal[WEIRI_SEAL_BYTES];
    weiri_seal_close(&conn->seal_out, frame, WEIRI_FRAME_HEAD_BYTES, seal);
    weiri_write_bytes(&w, seal, sizeof seal);
    weiri_write_bytes(&w, payload, sizeof payload);
    return w.size;
}

static void queue_refusal(weiri_conn *conn)
{
    uint8_t data[4 + 2 + WEIRI_TEXT_BYTES];
    weiri_writer w = weiri_writer_init(data, sizeof data);
    weiri_write_u32(&w, (uint32_t)conn->boot->join.failed);
    weiri_write_string(&w, conn->boot->join.text);
    weiri_conn_queue(conn, weiri_message_create(WEIRI_FRAME_REFUSE, 0, data, w.size, NULL, 0));
}

/* Rank 0: the rendezvous has failed. All ranks receive the error. After a mismatch or a death rank 0 stays for ranks
 * that come later, which otherwise would report that rank 0 is missing. */
static void refuse(weir_bootstrap *boot, weir_status status, const char *text)
{
    weiri_join *join = &boot->join;
    if (join->failed != WEIR_OK) {
        return;
    }
    set_failed(boot, status, text);
    const bool stay = status == WEIR_ERR_MISMATCH || status == WEIR_ERR_REMOTE;
    const uint64_t linger = weiri_now_ns() + (stay ? LINGER_LATE_NS : 0);
    join->linger_ns = linger < join->deadline_ns ? linger : join->deadline_ns;
    for (weiri_conn *conn = boot->conns.first; conn != NULL; conn = conn->next) {
        if (conn->join && conn->state == WEIRI_CONN_OPEN) {
            queue_refusal(conn);
        }
    }
}

/* Rank 0: all ranks are there. */
static void send_tables(weir_bootstrap *boot)
{
    uint8_t table[WEIRI_JOB_BYTES + NEIGHBOURS_MAX * ADDRESS_BYTES];
    uuid_generate_random(boot->job.id);
    for (weiri_conn *conn = boot->conns.first; conn != NULL; conn = conn->next) {
        if (!conn->join || conn->state != WEIRI_CONN_OPEN) {
            continue;
        }
        weiri_writer w = weiri_writer_init(table, sizeof table);
        weiri_write_bytes(&w, boot->job.id, sizeof boot->job.id);
        for (uint64_t step = 1; step < boot->size; step *= 2) {
            write_address(&w, &boot->peers[(conn->held_rank + step) % boot->size].address);
        }
        weiri_message *message = weiri_message_create(WEIRI_FRAME_TABLE, 0, table, w.size, NULL, 0);
        if (message == NULL) {
            refuse(boot, WEIR_ERR_NOMEM, "bootstrap: rank 0 is out of memory");
            return;
        }
        weiri_conn_queue(conn, message);
    }
    finish(boot);
}

/* Rank 0: checks a new rank against those that are there. */
static void enroll(weiri_conn *conn, uint32_t size, uint32_t left_ms, const weiri_address *address)
{
    weir_bootstrap *boot = conn->boot;
    weiri_join *join = &boot->join;
    const uint32_t rank = conn->held_rank;
    char text[WEIRI_TEXT_BYTES];
    join->came++;
    join->expected = size > join->expected ? size : join->expected;
    if (join->failed != WEIR_OK) {
        queue_refusal(conn);
    } else if (size != boot->size) {
        (void)snprintf(text, sizeof text, "bootstrap: rank %u was created with size %u, rank 0 with size %u", rank,
                       size, boot->size);
        refuse(boot, WEIR_ERR_MISMATCH, text);
    } else if (boot->peers[rank].address.family != 0) {
        (void)snprintf(text, sizeof text, "bootstrap: two ranks were created as rank %u of %u", rank, size);
        refuse(boot, WEIR_ERR_MISMATCH, text);
    } else {
        const uint64_t deadline = weiri_deadline(left_ms);
        join->deadline_ns = deadline < join->deadline_ns ? deadline : join->deadline_ns;
        boot->peers[rank].address = *address;
        join->present++;
        if (join->present == boot->size) {
            send_tables(boot);
        }
    }
}

/* Rank 0: the first frame of a connection for the rendezvous. */
static void meet(weiri_conn *conn, const weiri_message *message)
{
    weir_bootstrap *boot = conn->boot;
    weiri_reader r = weiri_reader_init(message->data, message->bytes);
    weiri_address address;
    const uint32_t size = weiri_read_u32(&r);
    const uint32_t left_ms = weiri_read_u32(&r);
    const bool good = read_address(&r, boot->join.root.scope, &address) && weiri_reader_done(&r) &&
                      size <= WEIR_RANKS_MAX && conn->held_rank < size;
    if (!good) {
        weiri_conn_corrupt(conn);
        return;
    }
    /* The rendezvous of another rank 0 with the same key at this address: the client retries until that rank 0 is here.
     */
    if (boot->rank != 0 || boot->join.taken[0] != '\0' || boot->join.done || boot->join.over || boot->closing) {
        weiri_conn_close(conn);
        return;
    }
    conn->join = true;
    weiri_conn_accepted(conn);
    weiri_conn_queue(conn, weiri_message_create(WEIRI_FRAME_WELCOME, 0, NULL, 0, NULL, 0));
    enroll(conn, size, left_ms, &address);
}

static void read_table(weiri_conn *conn, const weiri_message *message)
{
    weir_bootstrap *boot = conn->boot;
    weiri_reader r = weiri_reader_init(message->data, message->bytes);
    bool good = true;
    weiri_read_bytes(&r, boot->job.id, sizeof boot->job.id);
    for (uint64_t step = 1; step < boot->size && good; step *= 2) {
        good = read_address(&r, boot->join.root.scope, &boot->peers[(boot->rank + step) % boot->size].address);
    }
    if (!good || !weiri_reader_done(&r)) {
        weiri_conn_corrupt(conn);
        return;
    }
    weiri_conn_close(conn);
    finish(boot);
}

static void read_refusal(weiri_conn *conn, const weiri_message *message)
{
    weir_bootstrap *boot = conn->boot;
    char text[WEIRI_TEXT_BYTES];
    weiri_reader r = weiri_reader_init(message->data, message->bytes);
    const int32_t status = (int32_t)weiri_read_u32(&r);
    weiri_read_string(&r, text, sizeof text);
    if (!weiri_reader_done(&r) || status >= 0 || status <= WEIR_STATUS_FIRST_UNUSED) {
        weiri_conn_corrupt(conn);
        return;
    }
    weiri_conn_close(conn);
    set_failed(boot, (weir_status)status, text);
    set_over(boot);
}

void weiri_join_frame(weiri_conn *conn, weiri_message *message)
{
    if (message->kind == WEIRI_FRAME_JOIN && !conn->join) {
        meet(conn, message);
    } else if (!conn->initiated) {
        weiri_conn_corrupt(conn);
    } else if (message->kind == WEIRI_FRAME_WELCOME) {
        conn->boot->join.welcomed = true;
        weiri_log(WEIR_LOG_DEBUG, "bootstrap: rank 0 knows of rank %u", conn->boot->rank);
    } else if (message->kind == WEIRI_FRAME_TABLE) {
        read_table(conn, message);
    } else if (message->kind == WEIRI_FRAME_REFUSE) {
        read_refusal(conn, message);
    } else {
        weiri_conn_corrupt(conn);
    }
    weiri_message_free(message);
}

/* This rank 0 cannot listen, and no other rank knows the cause. */
static void fail_taken(weiri_conn *conn)
{
    weir_bootstrap *boot = conn->boot;
    weiri_conn_close(conn);
    set_failed(boot, WEIR_ERR_SYSTEM, boot->join.taken);
    set_over(boot);
}

void weiri_join_stop(weiri_conn *conn, weir_status status)
{
    weir_bootstrap *boot = conn->boot;
    if (boot->join.taken[0] != '\0') {
        fail_taken(conn);
        return;
    }
    char address[WEIRI_ADDRESS_TEXT_BYTES];
    char text[WEIRI_TEXT_BYTES];
    (void)snprintf(text, sizeof text, "bootstrap: rank 0 at %s: %.300s%s",
                   weiri_address_format(&conn->address, address), weir_last_error(),
                   boot->job.user_key ? " (without WEIR_KEY all ranks must be of one user and see the same /tmp)" : "");
    weiri_conn_close(conn);
    set_failed(boot, status, text);
    set_over(boot);
}

void weiri_join_lost(weiri_conn *conn, const char *cause)
{
    weir_bootstrap *boot = conn->boot;
    weiri_join *join = &boot->join;
    const uint32_t rank = conn->initiated ? 0 : conn->held_rank;
    const bool known = !conn->initiated || join->welcomed;
    if (join->done || join->over || boot->closing || (known && join->failed != WEIR_OK)) {
        weiri_conn_close(conn);
        return;
    }
    if (!known && join->taken[0] != '\0') {
        fail_taken(conn);
        return;
    }
    if (!known) {
        (void)snprintf(join->cause, sizeof join->cause, "%s", cause);
        weiri_conn_retry(conn, join->pause_ns);
        join->pause_ns = 2 * join->pause_ns < PAUSE_LAST_NS ? 2 * join->pause_ns : PAUSE_LAST_NS;
        return;
    }
    char text[WEIRI_TEXT_BYTES];
    (void)snprintf(text, sizeof text, "bootstrap: rank %u died during the rendezvous", rank);
    weiri_conn_close(conn);
    refuse(boot, WEIR_ERR_REMOTE, text);
    if (rank == 0) {
        set_over(boot);
    }
}

/* "timeout: ranks 3, 5 of 8 missing" */
static void describe_missing(const weir_bootstrap *boot, char text[WEIRI_TEXT_BYTES])
{
    const uint32_t missing = boot->size - boot->join.present;
    int at = snprintf(text, WEIRI_TEXT_BYTES, "bootstrap: timeout: rank%s ", missing == 1 ? "" : "s");
    uint32_t named = 0;
    for (uint32_t i = 0; i < boot->size && named < MISSING_NAMED; i++) {
        if (boot->peers[i].address.family == 0) {
            at += snprintf(text + at, (size_t)(WEIRI_TEXT_BYTES - at), "%s%u", named == 0 ? "" : ", ", i);
            named++;
        }
    }
    if (missing > named) {
        at += snprintf(text + at, (size_t)(WEIRI_TEXT_BYTES - at), " and %u more", missing - named);
    }
    at += snprintf(text + at, (size_t)(WEIRI_TEXT_BYTES - at), " of %u missing", boot->size);
    const uint64_t foreign = boot->listener.foreign + boot->listener.unproved;
    if (foreign > 0) {
        (void)snprintf(text + at, (size_t)(WEIRI_TEXT_BYTES - at), "; %llu connection%s did not prove the key",
                       (unsigned long long)foreign, foreign == 1 ? "" : "s");
    }
}

void weiri_join_tick(weir_bootstrap *boot, uint64_t now_ns)
{
    weiri_join *join = &boot->join;
    if (boot->rank != 0 || join->over || join->taken[0] != '\0') {
        return;
    }
    if (join->failed == WEIR_OK && now_ns >= join->deadline_ns) {
        char text[WEIRI_TEXT_BYTES];
        describe_missing(boot, text);
        refuse(boot, WEIR_ERR_TIMEOUT, text);
    }
    if (join->failed != WEIR_OK && (join->came >= join->expected || now_ns >= join->linger_ns)) {
        set_over(boot);
    }
}

/* True while rank 0 does not know this rank, which may still go elsewhere. */
static bool is_unknown(const weir_bootstrap *boot)
{
    return boot->join.conn != NULL && boot->join.conn->state != WEIRI_CONN_OPEN;
}

static bool has_moved(weir_bootstrap *boot, const weiri_meeting *meeting)
{
    if (meeting->moved == NULL || !is_unknown(boot)) {
        return false;
    }
    (void)pthread_mutex_unlock(&boot->mutex);
    const bool moved = meeting->moved(meeting->context);
    (void)pthread_mutex_lock(&boot->mutex);
    return moved && is_unknown(boot);
}

weir_status weiri_join_wait(weir_bootstrap *boot, const weiri_meeting *meeting)
{
    weiri_join *join = &boot->join;
    const uint64_t second_ns = weiri_now_ns() + SECOND_NS;
    const bool taken = join->taken[0] != '\0';
    const uint64_t deadline_ns = taken && second_ns < meeting->deadline_ns ? second_ns : meeting->deadline_ns;
    bool expired = false;
    while (!join->over && !expired) {
        /* Rank 0 names the missing ranks. The ranks that it knows wait a little longer for that. */
        const bool patient = boot->rank == 0 || join->welcomed;
        const uint64_t limit = deadline_ns + (patient && !taken ? LINGER_NS : 0);
        const uint64_t check = meeting->moved == NULL ? limit : weiri_now_ns() + MOVED_NS;
        const bool late = !weiri_cond_wait(&boot->cond, &boot->mutex, check < limit ? check : limit);
        expired = late && check >= limit && patient == (boot->rank == 0 || join->welcomed);
        if (late && !expired && !join->over && has_moved(boot, meeting)) {
            return WEIR_PENDING;
        }
    }
    if (join->failed != WEIR_OK) {
        return weiri_fail(join->failed, "%s", join->text);
    }
    if (join->over) {
        return WEIR_OK;
    }
    if (taken) {
        return weiri_fail(WEIR_ERR_SYSTEM, "%s", join->taken);
    }
    char address[WEIRI_ADDRESS_TEXT_BYTES];
    return weiri_fail(WEIR_ERR_TIMEOUT, "bootstrap: timeout: rank 0 of %u missing at %s: %s%s", boot->size,
                      weiri_address_format(&boot->join.root, address),
                      join->cause[0] == '\0' ? "no answer" : join->cause, meeting->hint);
}

weir_status weiri_join_exchange(weir_bootstrap *boot, uint64_t deadline_ns)
{
    uint8_t *table = (uint8_t *)weiri_alloc(boot->size, ADDRESS_BYTES);
    if (table == NULL) {
        return weiri_fail_nomem("bootstrap: addresses");
    }
    weiri_writer w = weiri_writer_init(table + (size_t)boot->rank * ADDRESS_BYTES, ADDRESS_BYTES);
    write_address(&w, &boot->peers[boot->rank].address);
    weir_status status = weiri_group_join(boot, table, ADDRESS_BYTES, deadline_ns);
    weiri_reader r = weiri_reader_init(table, (size_t)boot->size * ADDRESS_BYTES);
    (void)pthread_mutex_lock(&boot->mutex);
    for (uint32_t i = 0; i < boot->size && status == WEIR_OK && boot->size > 1; i++) {
        weiri_address address;
        if (!read_address(&r, boot->join.root.scope, &address)) {
            status = weiri_fail(WEIR_ERR_CORRUPT, "bootstrap: malformed address of rank %u", i);
        } else {
            boot->peers[i].address = address;
        }
    }
    (void)pthread_mutex_unlock(&boot->mutex);
    weiri_free(table);
    return status;
}
