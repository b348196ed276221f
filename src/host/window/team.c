/* team.c - steps that the ranks of a team take together, and how they agree on the outcome.
 *
 * Each member sends a message to each other member. The communicator's exchange carries the messages under the team's
 * tag, in order: a member's i-th message meets the i-th expectation of the other. A member that gives up a step has
 * sent its messages, and its expectations stay to take the messages that still come. So the team is in step
 * afterwards. */
#include "src/host/window/team.h"

#include <stdio.h>
#include <string.h>

#include "src/host/base/error.h"
#include "src/host/base/wire.h"
#include "src/host/comm/exchange.h"

#define TEXT_BYTES 200 /* of an error's text in a message */

/* ---- groups -------------------------------------------------------------------------------------------------- */

uint32_t weiri_group_rank(const weir_group *group, uint32_t index)
{
    return group != NULL ? group->ranks[index] : index;
}

weir_status weiri_group_check(const weir_comm *comm, const weir_group *group, uint32_t most, const char *call,
                              uint32_t *rank, uint32_t *size)
{
    const uint32_t count = group != NULL ? group->count : comm->size;
    bool found = false;
    if (count == 0 || (group != NULL && group->ranks == NULL)) {
        return weiri_fail(WEIR_ERR_INVALID, "%s: the group is empty", call);
    }
    if (count > most) {
        return weiri_fail(WEIR_ERR_LIMIT, "%s: %u ranks, but at most %u are possible", call, count, most);
    }
    for (uint32_t i = 0; i < count; i++) {
        const uint32_t member = weiri_group_rank(group, i);
        if (member >= comm->size || (i > 0 && member <= weiri_group_rank(group, i - 1))) {
            return weiri_fail(WEIR_ERR_INVALID, "%s: the group's ranks must exist and be in ascending order", call);
        }
        if (member == comm->rank) {
            *rank = i;
            found = true;
        }
    }
    *size = count;
    return found ? WEIR_OK : weiri_fail(WEIR_ERR_INVALID, "%s: this rank is not in the group", call);
}

/* ---- members ------------------------------------------------------------------------------------------------- */

void weiri_team_init(weiri_team *team, weir_comm *comm, uint64_t tag)
{
    memset(team, 0, sizeof *team);
    team->comm = comm;
    team->tag = tag;
    team->differ = "was given other arguments";
    team->lines = true;
}

void weiri_team_add(weiri_team *team, uint32_t rank)
{
    if (rank == team->comm->rank) {
        team->rank = team->size;
    }
    team->ranks[team->size++] = rank;
}

void weiri_team_close(weiri_team *team)
{
    for (uint32_t k = 0; k < team->size; k++) {
        weir_connection_destroy(team->connections[k]);
    }
}

/* ---- steps with each other member ---------------------------------------------------------------------------- */

weir_status weiri_team_fail_to_begin(weir_comm *comm, const char *call, weir_status status)
{
    char cause[256];
    if (status == WEIR_ERR_REMOTE || status == WEIR_ERR_UNSUPPORTED || status == WEIR_ERR_TIMEOUT) {
        return status;
    }
    snprintf(cause, sizeof cause, "%s: %s", call, weir_last_error());
    return weiri_comm_break(comm, status, cause);
}

weir_status weiri_team_each(weiri_team *team, const char *call, weiri_team_begin begin, void *context)
{
    weir_future *futures[WEIRI_TEAM_RANKS] = { NULL };
    weir_status status = WEIR_OK;
    for (uint32_t k = 0; k < team->size; k++) {
        const weir_status begun = k == team->rank ? WEIR_OK : begin(context, k, &futures[k]);
        if (begun != WEIR_OK) {
            status = weiri_team_fail_to_begin(team->comm, call, begun);
        }
    }
    for (uint32_t k = 0; k < team->size; k++) {
        if (futures[k] != NULL && status == WEIR_OK) {
            status = weiri_exchange_complete(futures[k]);
        } else if (futures[k] != NULL) {
            weir_future_destroy(futures[k]);
        }
    }
    return status;
}

/* ---- agreement ----------------------------------------------------------------------------------------------- */

/* The outcome of a step, as far as this rank knows it. */
typedef struct outcome {
    weir_status status;
    uint32_t rank; /* rank of the communicator at fault; has no meaning without an error */
    char text[512];
} outcome;

/* A member's message at the end of a step. */
typedef struct report {
    uint64_t words[WEIRI_TEAM_WORDS];
    bool lines;
    weir_status status;
    uint32_t rank; /* rank at fault */
    char text[TEXT_BYTES];
} report;

/* The first error counts. */
static void add_error(outcome *all, weir_status status, uint32_t rank)
{
    if (all->status == WEIR_OK && status != WEIR_OK) {
        all->status = status;
        all->rank = rank;
        snprintf(all->text, sizeof all->text, "%s", weir_last_error());
    }
}

static size_t write_report(const weiri_team *team, const outcome *mine, uint8_t payload[WEIRI_PAYLOAD_MAX])
{
    char cut[TEXT_BYTES];
    weiri_writer w = weiri_writer_init(payload, WEIRI_PAYLOAD_MAX);
    for (uint32_t i = 0; i < WEIRI_TEAM_WORDS; i++) {
        weiri_write_u64(&w, team->words[i]);
    }
    weiri_write_u32(&w, team->lines);
    weiri_write_u32(&w, (uint32_t)mine->status);
    weiri_write_u32(&w, mine->rank);
    snprintf(cut, sizeof cut, "%s", mine->text);
    weiri_write_string(&w, cut);
    return w.size;
}

static weir_status read_report(weir_future *future)
{
    report *theirs = (report *)future->out;
    weiri_reader r = weiri_reader_init(future->payload, future->payload_bytes);
    for (uint32_t i = 0; i < WEIRI_TEAM_WORDS; i++) {
        theirs->words[i] = weiri_read_u64(&r);
    }
    theirs->lines = weiri_read_u32(&r) != 0;
    const int32_t status = (int32_t)weiri_read_u32(&r);
    theirs->rank = weiri_read_u32(&r);
    weiri_read_string(&r, theirs->text, sizeof theirs->text);
    if (!weiri_reader_done(&r) || status > WEIR_OK || status <= WEIR_STATUS_FIRST_UNUSED || future->handle_count != 0) {
        return weiri_fail(WEIR_ERR_CORRUPT, "malformed message of rank %u, which ends a step", future->peer);
    }
    theirs->status = (weir_status)status;
    return WEIR_OK;
}

/* The words of this rank and of `peer` differ. The text names the first word that differs, if it has a name. */
static weir_status fail_mismatch(const weiri_team *team, const char *call, uint32_t peer, const uint64_t *theirs)
{
    uint32_t i = 0;
    while (team->words[i] == theirs[i]) {
        i++;
    }
    return team->names[i] == NULL
               ? weiri_fail(WEIR_ERR_MISMATCH, "%s: rank %u %s", call, peer, team->differ)
               : weiri_fail(WEIR_ERR_MISMATCH, "%s: rank %u gave %s %llu, rank %u %llu", call, peer, team->names[i],
                            (unsigned long long)theirs[i], team->comm->rank, (unsigned long long)team->words[i]);
}

/* Adds the report of member `index`. If it blames another rank, its text is passed on unchanged. */
static void check_report(const weiri_team *team, const char *call, uint32_t index, const report *theirs, outcome *all)
{
    const uint32_t peer = team->ranks[index];
    if (theirs->status != WEIR_OK) {
        add_error(all,
                  theirs->rank != peer ? weiri_fail(theirs->status, "%s", theirs->text)
                                       : weiri_fail(theirs->status, "%s: rank %u failed: %s", call, peer, theirs->text),
                  theirs->rank);
    } else if (memcmp(team->words, theirs->words, sizeof team->words) != 0) {
        add_error(all, fail_mismatch(team, call, peer, theirs->words), peer);
    }
}

/* Sends *all to each other member, and adds their reports. */
static void exchange_reports(weiri_team *team, const char *call, bool waits, outcome *all)
{
    report reports[WEIRI_TEAM_RANKS];
    weir_future *futures[WEIRI_TEAM_RANKS] = { NULL };
    uint8_t payload[WEIRI_PAYLOAD_MAX];
    weir_comm *comm = team->comm;
    const weiri_op_message message = { WEIRI_OP_TEAM, payload, write_report(team, all, payload), { NULL, NULL }, 0 };
    for (uint32_t k = 0; k < team->size; k++) {
        if (k == team->rank) {
            continue;
        }
        weir_status begun = weiri_exchange_expect(comm, team->ranks[k], team->tag, WEIRI_OP_TEAM, read_report, NULL,
                                                  NULL, &reports[k], &futures[k]);
        if (begun == WEIR_OK) {
            begun = weiri_exchange_send(comm, team->ranks[k], team->tag, &message);
        }
        add_error(all, begun == WEIR_OK ? begun : weiri_team_fail_to_begin(comm, call, begun), comm->rank);
    }
    /* Destroyed futures still take the messages that were meant for them. */
    for (uint32_t k = 0; k < team->size; k++) {
        if (futures[k] != NULL && all->status != WEIR_OK && !waits) {
            weir_future_destroy(futures[k]);
        } else if (futures[k] != NULL) {
            const weir_status status = weiri_exchange_complete(futures[k]);
            add_error(all, status, comm->rank);
            if (status == WEIR_OK) {
                check_report(team, call, k, &reports[k], all);
            }
            team->lines = team->lines && status == WEIR_OK && reports[k].lines;
        }
    }
}

weir_status weiri_team_agree(weiri_team *team, weiri_team *across, const char *call, weir_status mine, bool waits)
{
    outcome all = { WEIR_OK, 0, "" };
    add_error(&all, mine, team->comm->rank);
    exchange_reports(team, call, waits, &all);
    if (across != NULL) {
        exchange_reports(across, call, waits, &all);
    }
    return all.status == WEIR_OK ? WEIR_OK : weiri_fail(all.status, "%s", all.text);
}

/* ---- words that differ ---------------------------------------------------------------------------------------- */

typedef struct telling {
    weiri_team *team;
    uint64_t (*told)[WEIRI_TEAM_WORDS];
    weiri_op_message message;
} telling;

static weir_status read_words(weir_future *future)
{
    uint64_t *words = (uint64_t *)future->out;
    weiri_reader r = weiri_reader_init(future->payload, future->payload_bytes);
    for (uint32_t i = 0; i < WEIRI_TEAM_WORDS; i++) {
        words[i] = weiri_read_u64(&r);
    }
    return weiri_reader_done(&r) && future->handle_count == 0
               ? WEIR_OK
               : weiri_fail(WEIR_ERR_CORRUPT, "malformed words of rank %u", future->peer);
}

static weir_status begin_telling(void *context, uint32_t index, weir_future **future)
{
    const telling *t = (const telling *)context;
    const uint32_t peer = t->team->ranks[index];
    const weir_status status = weiri_exchange_expect(t->team->comm, peer, t->team->tag, WEIRI_OP_TEAM, read_words, NULL,
                                                     NULL, t->told[index], future);
    return status == WEIR_OK ? weiri_exchange_send(t->team->comm, peer, t->team->tag, &t->message) : status;
}

weir_status weiri_team_tell(weiri_team *team, const char *call, const uint64_t mine[WEIRI_TEAM_WORDS],
                            uint64_t told[][WEIRI_TEAM_WORDS])
{
    uint8_t payload[WEIRI_TEAM_WORDS * sizeof(uint64_t)];
    weiri_writer w = weiri_writer_init(payload, sizeof payload);
    for (uint32_t i = 0; i < WEIRI_TEAM_WORDS; i++) {
        weiri_write_u64(&w, mine[i]);
        told[team->rank][i] = mine[i];
    }
    telling context = { team, told, { WEIRI_OP_TEAM, payload, w.size, { NULL, NULL }, 0 } };
    return weiri_team_each(team, call, begin_telling, &context);
}

/* ---- connections and memory ---------------------------------------------------------------------------------- */

typedef struct connecting {
    weiri_team *team;
    const weir_connection_opts *opts;
} connecting;

static weir_status begin_connection(void *context, uint32_t index, weir_future **future)
{
    const connecting *c = (const connecting *)context;
    weiri_team *team = c->team;
    return weir_connection_create_async(team->comm, team->ranks[index], team->tag, c->opts, &team->connections[index],
                                        future);
}

weir_status weiri_team_connect(weiri_team *team, const char *call, const weir_connection_opts *opts)
{
    connecting context = { team, opts };
    weir_status status = weiri_team_each(team, call, begin_connection, &context);
    for (uint32_t k = 0; k < team->size && status == WEIR_OK; k++) {
        team->lines = team->lines && (k == team->rank || weir_connection_keeps_lines(team->connections[k]));
    }
    return status;
}

typedef struct sharing {
    weiri_team *team;
    weiri_team_memory *memory;
} sharing;

static weir_status begin_sharing(void *context, uint32_t index, weir_future **future)
{
    const sharing *s = (const sharing *)context;
    weiri_team *team = s->team;
    const uint32_t peer = team->ranks[index];
    weir_status status = weir_memory_recv_async(team->comm, peer, team->tag, &s->memory->remote[index], future);
    return status == WEIR_OK ? weir_memory_send(team->comm, s->memory->local, peer, team->tag) : status;
}

weir_status weiri_team_share_any(weiri_team *team, const char *call, weir_memory *local, bool mapped,
                                 weiri_team_memory *memory)
{
    sharing context = { team, memory };
    memset(memory, 0, sizeof *memory);
    memory->local = local;
    weir_status status = weiri_team_each(team, call, begin_sharing, &context);
    for (uint32_t k = 0; k < team->size && status == WEIR_OK; k++) {
        if (k != team->rank && mapped && weir_memory_pointer(memory->remote[k]) == NULL) {
            status = weiri_fail(WEIR_ERR_UNSUPPORTED, "%s: memory of rank %u is not mapped here", call, team->ranks[k]);
        }
    }
    return status;
}

weir_status weiri_team_share(weiri_team *team, const char *call, weir_memory *local, bool mapped,
                             weiri_team_memory *memory)
{
    weir_status status = weiri_team_share_any(team, call, local, mapped, memory);
    for (uint32_t k = 0; k < team->size && status == WEIR_OK; k++) {
        const weir_memory *remote = memory->remote[k];
        if (k != team->rank && weir_memory_bytes(remote) != weir_memory_bytes(local)) {
            status = weiri_fail(WEIR_ERR_MISMATCH, "%s: rank %u has a memory of %llu bytes, this rank of %llu", call,
                                team->ranks[k], (unsigned long long)weir_memory_bytes(remote),
                                (unsigned long long)weir_memory_bytes(local));
        }
    }
    return status;
}

void weiri_team_memory_close(weiri_team_memory *memory)
{
    for (uint32_t k = 0; k < WEIRI_TEAM_RANKS; k++) {
        weir_memory_destroy(memory->remote[k]);
        memory->remote[k] = NULL;
    }
}
