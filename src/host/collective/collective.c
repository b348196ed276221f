/* collective.c - create and free: a collective's teams, and its memory with the layout of
 * include/weir/device/impl/collective_call.h. */
#include "src/host/collective/collective.h"

#include <stdio.h>
#include <string.h>

#include "src/host/base/alloc.h"
#include "src/host/base/env.h"
#include "src/host/base/error.h"
#include "src/host/comm/exchange.h"

#define STAGING_GPU ((uint64_t)8 << 20) /* by default, until it grows by: */
#define STAGING_CPU ((uint64_t)1 << 20)
#define GROWTH_GPU ((uint64_t)288 << 20)
#define GROWTH_CPU ((uint64_t)4 << 20)
#define LONG_GPU ((uint64_t)16 << 20) /* for each rank of the host: all long slots of a rank */
#define LONG_CPU ((uint64_t)256 << 10)
#define BLOCKS_MOST 1024u
#define ROOM_MOST ((uint64_t)1 << 30) /* the most bytes of a room, which the handle has in 32 bits */
#define LINE_ROOM_MOST (ROOM_MOST / WEIRI_LINE_ROOMS_OF_TWO) /* parts have 32 bits for places in all rooms of lines */
#define SLOT_MOST ((uint64_t)512 << 10)
#define LONG_SLOT_MOST ((uint64_t)2 << 20) /* with up to FEW_SMS: local.c says when a round is so long */
#define FEW_SMS 16u
#define MESSAGE_MOST ((uint64_t)2 << 20)
/* Of many columns. With longer slots, 64 and 256 MiB between two ranks on one H200 took 5 to 10 % longer. */
#define MESSAGE_MOST_OF_MANY ((uint64_t)256 << 10)
#define RING_MOST 13 /* as a power of two, the most bytes of a small transfer: packets of 1,024 threads */
#define RING_LEAST 6 /* and the least */
#define UNIT_LEAST 5 /* the same, the least data of a unit: the rings end at a multiple of 128 bytes */
#define RING_DEPTH 3 /* a ring has up to 2^3 times 4 units */
/* The bytes for each rank that message slots leave to the rings. What these need beyond that lies beside the staging:
 * with rings of 20 KiB more in 8 MiB, which left 26 columns in place of 27, exchanges of 256 KiB to 16 MiB between two
 * H200 took 12 to 13 % longer. */
#define RING_SHARE ((uint64_t)4 * (WEIR_RING_HEAD + (2u << RING_MOST)))

static weir_status invalid(const char *call, const char *what)
{
    return weiri_fail(WEIR_ERR_INVALID, "%s: %s", call, what);
}

/* ---- ranks and layout ---------------------------------------------------------------------------------------- */

/* Bytes of one of `slots` slots, or of rooms for packets or lines. */
static uint64_t slot_of(uint64_t bytes, uint64_t slots, uint64_t most)
{
    const uint64_t slot = bytes / slots < most ? bytes / slots : most;
    return slot < WEIR_CELL_BYTES ? WEIR_CELL_BYTES : slot / WEIR_CELL_BYTES * WEIR_CELL_BYTES;
}

/* How staging is divided. Mailboxes and semaphores are not part of it. */
typedef struct shares {
    uint32_t all; /* parts of the staging. The next four may be fewer; in first_shares they are one more */
    uint32_t packets;
    uint32_t lines;
    uint32_t slots;
    uint32_t messages;
    uint64_t slot_least; /* so long is a slot at least, with fewer columns where necessary; 0: each column has slots */
    /* Exchanges have the columns whose slots can be so long. If these are fewer than `message_columns`, exchanges have
     * `message_few` columns with shorter slots. They never have more than the SM limit allows. */
    uint64_t message_least;
    uint32_t message_columns;
    uint32_t message_few;
} shares;

/* Most of a large staging is for slots and lines. Before the staging grows, packets and lines of small data need more
 * of it, and its slots would be too short if all columns had some. */
static const shares large_shares = { 16, 1, 5, 8, 1, 0, (uint64_t)16 << 10, 8, 8 };
/* With so much, slots of exchanges have room for long messages. */
static const shares huge_shares = { 18, 1, 5, 8, 4, 0, (uint64_t)16 << 10, 8, 8 };
/* With the default staging, long messages of exchanges have another memory (slots.c). Then columns are worth more than
 * the length of their slots. */
static const shares first_shares = { 16, 4, 4, 6, 3, (uint64_t)16 << 10, (uint64_t)8 << 10, 32, UINT32_MAX };
/* The rows of the library were measured with these rooms. */
static const shares growth_shares = { 18, 1, 5, 8, 0, 0, 0, 0, 0 };

/* The number of columns that have slots, of which two ranks may use one for each block. */
static uint32_t count_columns(const weir_dev_collective *device, uint64_t bytes, uint64_t least)
{
    const uint32_t all = device->ranks == 2 ? device->blocks : weir_slots_columns(device->blocks);
    const uint64_t fit = least == 0 ? all : bytes / least;
    return fit >= all ? all : fit == 0 ? 1 : (uint32_t)fit;
}

/* The number of columns of exchanges, whose slots have `bytes` bytes in all. */
static uint32_t count_message_columns(uint32_t sm_limit, uint64_t bytes, uint32_t ranks, const shares *part)
{
    const uint32_t most = weiri_exchange_columns(sm_limit, ranks);
    const uint64_t fit = bytes / weiri_slots_of_column(ranks) / part->message_least;
    const uint64_t wanted = fit < part->message_columns ? part->message_few : fit;
    return wanted < most ? (uint32_t)wanted : most;
}

/* Sets the units of the rings of exchanges, which have at most 3/4 of the bytes for exchanges. Transfers as long as
 * possible are small; then a ring has as many units as possible. Returns the bytes of all rings. */
static uint64_t divide_rings(weir_dev_collective *device, uint64_t bytes)
{
    for (int small = RING_MOST; small >= RING_LEAST; small--) {
        const int most = small - UNIT_LEAST < RING_DEPTH ? small - UNIT_LEAST : RING_DEPTH;
        for (int depth = most; depth >= 0; depth--) {
            const uint32_t units = 4u << depth;
            const uint32_t shift = (uint32_t)(small - depth);
            const uint64_t rings = (uint64_t)weir_ring_total(units, shift) * device->ranks;
            if (rings <= bytes / 4 * 3) {
                device->ring_lines = (uint16_t)(weir_ring_total(units, shift) / WEIR_LINE_BYTES);
                device->ring_units = (uint8_t)units;
                device->ring_shift = (uint8_t)shift;
                return rings;
            }
        }
    }
    return 0;
}

/* Bytes of a message slot. */
static uint64_t message_slot_of(uint64_t bytes, const weir_dev_collective *device)
{
    const bool many = device->message_blocks >= WEIRI_MANY_COLUMNS;
    return slot_of(bytes, weiri_slots_number(device), many ? MESSAGE_MOST_OF_MANY : MESSAGE_MOST);
}

/* Fills the sizes and offsets of *device, and returns the bytes of a rank's memory. Without a share for messages, those
 * of exchanges stay as they are: they lie elsewhere. */
static uint64_t lay_out(weir_dev_collective *device, uint32_t sm_limit, uint64_t staging, const shares *part)
{
    const uint64_t unit = staging / part->all;
    const uint64_t rooms = (uint64_t)2 * 2 * device->ranks;             /* sections, halves, ranks */
    const uint64_t line_rooms = device->ranks == 2 ? rooms + 1 : rooms; /* lines of rank 1 begin a room later */
    device->packet_room = (uint32_t)slot_of(unit * part->packets, rooms, ROOM_MOST);
    device->line_room = (uint32_t)slot_of(unit * part->lines, line_rooms, LINE_ROOM_MOST);
    const uint64_t slots = (uint64_t)2 * 2 * weir_collective_sources(device->ranks); /* of a column */
    device->slot_columns = count_columns(device, unit * part->slots / slots, part->slot_least);
    device->slot_bytes =
        slot_of(unit * part->slots, slots * device->slot_columns, sm_limit <= FEW_SMS ? LONG_SLOT_MOST : SLOT_MOST);
    const uint64_t share = unit * part->messages;
    const uint64_t rings = share != 0 ? divide_rings(device, share) : 0;
    const uint64_t ring_share = share / 2 < RING_SHARE * device->ranks ? share / 2 : RING_SHARE * device->ranks;
    const uint64_t left = share - (rings != 0 ? ring_share : 0);
    if (share != 0) {
        device->message_blocks = count_message_columns(sm_limit, left, device->ranks, part);
        device->message_bytes = message_slot_of(left, device);
    }
    device->mailboxes = weir_collective_lines(device) + line_rooms * device->line_room;
    device->slots = weir_collective_cell(device, WEIR_CELL_KINDS, 0, 0);
    const uint64_t end = device->slots + slots * device->slot_columns * device->slot_bytes + rings;
    if (share == 0) {
        return end;
    }
    device->messages = end;
    return end + weiri_slots_number(device) * device->message_bytes;
}

/* The ranks compare their rows by this hash. */
static uint64_t hash_rows(const weir_collective *collective)
{
    uint64_t hash = 0;
    for (uint32_t i = 0; i < collective->row_count; i++) {
        const weiri_row *row = &collective->rows[i];
        const uint64_t fields[] = { row->kinds,  row->ranks,   row->bytes, (uint64_t)row->form,
                                    row->blocks, row->threads, row->limit };
        for (uint32_t k = 0; k < sizeof fields / sizeof fields[0]; k++) {
            hash = (hash ^ fields[k]) * 0x100000001b3u + 1;
        }
    }
    return hash;
}

/* The largest number of ranks that have one device: their kernels must fit on it together. */
static uint32_t ranks_of_a_device(const weir_collective *collective, const weir_group *group)
{
    const weir_comm *comm = collective->comm;
    uint32_t most = 1;
    for (uint32_t i = 0; i < collective->size; i++) {
        const weiri_end *end = &comm->peers[weiri_group_rank(group, i)].end;
        uint32_t sharing = 1;
        for (uint32_t k = 0; k < i; k++) {
            const weiri_end *other = &comm->peers[weiri_group_rank(group, k)].end;
            sharing += memcmp(end->device_uuid, other->device_uuid, sizeof end->device_uuid) == 0;
        }
        most = sharing > most ? sharing : most;
    }
    return most;
}

/* True if several blocks by slots share a multiprocessor; the same on all ranks. Among more than two ranks that is
 * faster: while one block waits for the last stores of its round, the others go on. */
static bool oversubscribes(const weir_collective *collective, const weir_collective_opts *opts)
{
    const weir_shape all = { collective->sm_limit * WEIRI_OVERSUBSCRIPTION, WEIRI_OVERSUBSCRIBED_THREADS };
    return collective->warps && collective->device.ranks > 2 && opts->blocks == 0 && opts->threads == 0 &&
           weir_device_fit_shape(collective->comm->device, all).blocks == all.blocks &&
           ranks_of_a_device(collective, opts->group) == 1;
}

/* Also sets opts->staging_bytes from the environment. */
static weir_status take_opts(weir_collective *collective, weir_collective_opts *opts, uint64_t *bytes)
{
    weiri_env env;
    const weir_status read = weiri_env_read(&env);
    if (read != WEIR_OK) {
        return read;
    }
    opts->staging_bytes = env.staging_set ? env.staging : opts->staging_bytes;
    weir_device_info info;
    weir_device_get_info(collective->comm->device, &info, sizeof info);
    collective->warps = info.warps;
    uint64_t staging = opts->staging_bytes;
    if (staging == 0) {
        staging = collective->warps ? STAGING_GPU : STAGING_CPU;
    }
    if (staging < WEIRI_STAGING_LEAST || staging > WEIRI_STAGING_MOST) {
        return weiri_fail(WEIR_ERR_INVALID,
                          "weir_collective_create: opts.staging_bytes is %llu; %llu to %llu are allowed",
                          (unsigned long long)staging, (unsigned long long)WEIRI_STAGING_LEAST,
                          (unsigned long long)WEIRI_STAGING_MOST);
    }
    if (opts->form > WEIR_FORM_COPIES) {
        return invalid("weir_collective_create", "unknown form");
    }
    const weir_shape all = { collective->warps ? info.multiprocessors : 2, info.block_threads };
    const weir_shape fit = weir_device_fit_shape(collective->comm->device, all);
    const uint32_t sharing = collective->warps ? ranks_of_a_device(collective, opts->group) : 1;
    const uint32_t share = fit.blocks > sharing ? fit.blocks / sharing : 1;
    collective->sm_limit = opts->blocks != 0 ? opts->blocks : share;
    collective->limited = collective->sm_limit < fit.blocks;
    collective->threads = opts->threads != 0 || collective->warps ? opts->threads : fit.threads;
    collective->most_threads = opts->threads != 0 ? opts->threads : info.block_threads;
    /* The blocks of one kernel wait for each other, so all must be resident. */
    const uint32_t most = collective->warps ? info.multiprocessors : BLOCKS_MOST;
    if (collective->sm_limit > most || collective->threads > info.block_threads ||
        (collective->warps && collective->threads % 32 != 0)) {
        return weiri_fail(WEIR_ERR_INVALID,
                          "weir_collective_create: opts.blocks is %u (limit %u), opts.threads is %u (limit %u%s)",
                          collective->sm_limit, most, collective->threads, info.block_threads,
                          collective->warps ? ", a multiple of 32" : "");
    }
    collective->device.blocks = collective->sm_limit * (oversubscribes(collective, opts) ? WEIRI_OVERSUBSCRIPTION : 1);
    collective->form = opts->form;
    collective->check_pointers = opts->check_pointers;
    *bytes = lay_out(&collective->device, collective->sm_limit, staging,
                     opts->staging_bytes == 0 ? &first_shares
                     : staging < GROWTH_GPU   ? &large_shares
                                              : &huge_shares);
    weir_status status = opts->order_streams ? weiri_order_open(collective) : WEIR_OK;
    if (status == WEIR_OK && opts->staging_bytes == 0 && collective->device.ranks > 1) {
        const uint64_t slots = (collective->warps ? LONG_GPU : LONG_CPU) * collective->device.ranks;
        collective->long_bytes = message_slot_of(slots, &collective->device);
        status = weiri_slots_open(collective);
    }
    if (status == WEIR_OK && opts->map_recorded) {
        status = weiri_map_open(collective);
    }
    return status == WEIR_OK && env.collective_table_set ? weiri_tuning_read(collective, env.collective_table) : status;
}

/* Sets the words that must be equal on the ranks of a host, and on the ranks that rails join. */
static void set_words(weir_collective *collective, const weir_collective_opts *opts)
{
    static const char differ[] = "was given other opts, another tuning file, or another WEIR_STAGING";
    const weir_dev_collective *device = &collective->device;
    const uint64_t words[WEIRI_TEAM_WORDS] = { (uint64_t)device->ranks << 32 | device->blocks,
                                               device->packet_room,
                                               device->line_room,
                                               device->slot_bytes,
                                               (uint64_t)opts->map_recorded << 32 | collective->form,
                                               device->message_bytes << 32 | collective->long_bytes,
                                               hash_rows(collective) };
    memcpy(collective->host.words, words, sizeof words);
    collective->host.differ = differ;
    collective->rails.team.words[0] = opts->staging_bytes;
    collective->rails.team.words[1] = device->blocks;
    collective->rails.team.differ = differ;
}

/* ---- create ------------------------------------------------------------------------------------------------- */

uint64_t weiri_collective_tag(const weir_collective *collective, uint64_t kind)
{
    /* The memory of the first rank is that of no other collective. */
    const weir_memory *memory = weiri_team_memory_of(&collective->memory, 0);
    return kind ^ (uint64_t)memory->rank << 40 ^ memory->id;
}

weir_status weiri_collective_agree(weir_collective *collective, const char *call, weir_status mine, bool waits)
{
    weiri_team *across = collective->rails.device.hosts > 1 ? &collective->rails.team : NULL;
    return weiri_team_agree(&collective->host, across, call, mine, waits);
}

/* Copies a few zeros within the new memory. CUDA may load a kernel for the first copy within a GPU, and wait for the
 * GPU's other kernels to do so. Before the first copy of WEIR_FORM_COPIES a kernel waits for the other ranks. Those
 * that are threads of this process, on the same GPU, could not launch theirs meanwhile. */
static weir_status load_copies(weir_device *device, const weir_memory *memory)
{
    char *zeros = (char *)weir_memory_pointer(memory);
    const weir_status status = weir_device_copy(device, zeros + WEIR_CELL_BYTES, zeros, 1);
    return status == WEIR_OK ? weir_device_copy(device, zeros + WEIR_CELL_BYTES, zeros, WEIR_CELL_BYTES) : status;
}

/* Allocates this rank's memory. A rank that is alone on its host has none: it meets nobody there. Its address is that
 * of the first of the collective's cells then, since kernels compute places in the memory before they find that they
 * use none. */
static weir_status allocate(weir_collective *collective, uint64_t bytes)
{
    const weir_memory_opts host = { .size = sizeof host, .kind = WEIR_MEMORY_HOST };
    const uint64_t differences = WEIR_DIFFERENCES_FAR + (uint64_t)collective->size;
    weir_comm *comm = collective->comm;
    weir_dev_collective *device = &collective->device;
    weir_status status = weiri_life_open(collective);
    if (status == WEIR_OK && device->ranks == 1) {
        device->memory[0] = (char *)device->epoch;
    } else if (status == WEIR_OK) {
        status = weir_memory_allocate(comm, bytes, NULL, &collective->memory.local);
        status = status == WEIR_OK ? load_copies(comm->device, collective->memory.local) : status;
    }
    if (status == WEIR_OK && collective->size > 1) {
        status = weir_memory_allocate(comm, differences * sizeof(weir_dev_difference), &host, &collective->differences);
    }
    return status;
}

/* `mine` is the outcome of this rank's part of create so far. */
static weir_status open_memories(weir_collective *collective, uint64_t bytes, weir_status mine)
{
    static const char call[] = "weir_collective_create";
    weir_comm *comm = collective->comm;
    weir_dev_collective *device = &collective->device;
    mine = mine == WEIR_OK ? allocate(collective, bytes) : mine;
    weir_status status = weiri_collective_agree(collective, call, mine, false);
    if (status == WEIR_OK) {
        status = weiri_collective_agree(collective, call, weiri_team_connect(&collective->host, call, NULL), true);
    }
    if (status == WEIR_OK && device->ranks > 1) {
        mine = weiri_team_share(&collective->host, call, collective->memory.local, true, &collective->memory);
        status = weiri_collective_agree(collective, call, mine, true);
    }
    for (uint32_t k = 0; k < device->ranks && status == WEIR_OK; k++) {
        const weir_memory *memory = device->ranks > 1 ? weiri_team_memory_of(&collective->memory, k) : NULL;
        device->memory[k] = memory != NULL ? (char *)weir_memory_pointer(memory) : device->memory[k];
        device->peers[k] = collective->host.ranks[k];
    }
    device->call = WEIR_NO_CALL;
    if (status == WEIR_OK) {
        device->control = comm->slabs.control_device;
        device->differences = (weir_dev_difference *)weir_memory_pointer(collective->differences);
    }
    return status;
}

/* The collective is complete. Prepares the growth of its staging, if that is the default. */
static void plan_growth(weir_collective *collective, const weir_collective_opts *opts)
{
    weiri_growth *growth = &collective->growth;
    collective->now = &collective->device;
    growth->possible = opts->staging_bytes == 0 && collective->device.ranks > 1;
    growth->device = collective->device;
    const uint64_t staging = collective->warps ? GROWTH_GPU : GROWTH_CPU;
    growth->bytes = lay_out(&growth->device, collective->sm_limit, staging, &growth_shares);
}

/* Writes the difference that a kernel has found. */
static bool describe_difference(void *context, weir_status status, char *text, size_t bytes)
{
    const weir_collective *collective = (const weir_collective *)context;
    const weir_dev_difference *all = (const weir_dev_difference *)weir_memory_host_pointer(collective->differences);
    const uint32_t count = all != NULL ? WEIR_DIFFERENCES_FAR + collective->size : 0;
    const weir_dev_difference *first = all != NULL ? &all[collective->device.rank] : NULL;
    if (status == WEIR_ERR_MISMATCH && first != NULL && weir_arch_load_acquire_sys_u64(&first->found) != 0) {
        const uint32_t *ranks = collective->host.ranks;
        weiri_call_differ(first, &ranks[weir_arch_load_relaxed_sys_u64(&first->first) - 1], ranks[0], text, bytes);
        return true;
    }
    for (uint32_t k = 0; status == WEIR_ERR_MISMATCH && k < count; k++) {
        if (weir_arch_load_acquire_sys_u64(&all[k].found) != 0) {
            const uint32_t peer = k < WEIR_COLLECTIVE_RANKS  ? collective->host.ranks[k]
                                  : k < WEIR_DIFFERENCES_FAR ? collective->rails.team.ranks[k - WEIR_COLLECTIVE_RANKS]
                                                             : collective->rails.ranks[k - WEIR_DIFFERENCES_FAR];
            weiri_call_differ(&all[k], NULL, peer, text, bytes);
            return true;
        }
    }
    return false;
}

void weiri_collective_close(weir_collective *collective, bool keeps)
{
    if (collective->error_hook.describe != NULL) {
        weiri_comm_remove_error_hook(collective->comm, &collective->error_hook);
    }
    weiri_registrations_close(collective);
    weiri_map_close(collective);
    weiri_life_close(collective, keeps);
    weiri_free(collective->rows);
    weiri_order_close(collective);
    weiri_copies_close(collective);
    weiri_rails_close(collective);
    weiri_growth_close(collective);
    weiri_slots_close(collective);
    weiri_team_memory_close(&collective->memory);
    weiri_team_close(&collective->host);
    weir_memory_destroy(collective->differences);
    weir_memory_destroy(collective->memory.local);
    weiri_comm_put(collective->comm);
    weiri_free(collective);
}

/* The part of create that allocates nothing, so that a rank without memory can still report its error to the others. */
static weir_status find_members(weir_collective *members, weir_comm *comm, const weir_collective_opts *opts)
{
    static const char call[] = "weir_collective_create";
    memset(members, 0, sizeof *members);
    members->comm = comm;
    weiri_team_init(&members->host, comm, WEIRI_TAG_COLLECTIVE);
    weiri_team_init(&members->rails.team, comm, WEIRI_TAG_RAILS);
    weir_status status = weiri_group_check(comm, opts->group, WEIR_COLLECTIVE_RANKS * WEIR_COLLECTIVE_HOSTS, call,
                                           &members->rank, &members->size);
    if (status == WEIR_OK) {
        status = weiri_rails_find(members, opts);
    }
    return status == WEIR_OK && members->rails.device.hosts > 1 ? weiri_rails_meet(members, opts, call) : status;
}

weir_status weir_collective_create(weir_comm *comm, const weir_collective_opts *opts, weir_collective **out)
{
    static const char call[] = "weir_collective_create";
    weir_collective_opts options;
    uint64_t bytes = 0;
    weir_collective members;
    weir_status status = weiri_comm_check("comm", comm, call);
    if (status != WEIR_OK) {
        return status;
    }
    if (!WEIRI_OPTS_OK(opts)) {
        return invalid(call, WEIRI_OPTS_ERROR(opts));
    }
    weiri_opts_copy(&options, sizeof options, opts);
    status = find_members(&members, comm, &options);
    if (status != WEIR_OK) {
        return status;
    }
    if (out == NULL) {
        return weiri_collective_agree(&members, call, invalid(call, "out is NULL"), false);
    }
    weir_collective *collective = (weir_collective *)weiri_alloc(1, sizeof *collective);
    if (collective == NULL) {
        return weiri_collective_agree(&members, call, weiri_fail_nomem(call), false);
    }
    *collective = members;
    weiri_comm_get(comm);
    status = take_opts(collective, &options, &bytes);
    set_words(collective, &options);
    status = open_memories(collective, bytes, status);
    if (status == WEIR_OK && collective->rails.device.hosts > 1) {
        status = weiri_rails_open(collective, &options);
    }
    if (status != WEIR_OK) {
        char text[512];
        snprintf(text, sizeof text, "%s", weir_last_error());
        weiri_collective_close(collective, false);
        return weiri_fail(status, "%s", text);
    }
    plan_growth(collective, &options);
    collective->error_hook.describe = describe_difference;
    collective->error_hook.context = collective;
    weiri_comm_set_call_text(comm, weiri_call_text);
    weiri_comm_add_error_hook(comm, &collective->error_hook);
    weiri_life_begin(collective);
    *out = collective;
    return WEIR_OK;
}

/* ---- the rest ------------------------------------------------------------------------------------------------- */

uint32_t weir_collective_rank(const weir_collective *collective) { return collective != NULL ? collective->rank : 0; }

uint32_t weir_collective_size(const weir_collective *collective) { return collective != NULL ? collective->size : 0; }

uint64_t weir_collective_bytes(const weir_collective *collective)
{
    return collective != NULL
               ? weir_memory_bytes(collective->memory.local) + weir_memory_bytes(collective->growth.memory.local) +
                     weiri_slots_bytes(collective) + weir_memory_bytes(collective->rails.memory.local)
               : 0;
}

void weir_collective_device(const weir_collective *collective, weir_dev_collective *out)
{
    if (out == NULL) {
        return;
    }
    memset(out, 0, sizeof *out);
    if (collective != NULL) {
        *out = collective->device;
    }
}

weir_status weir_collective_add(weir_collective *collective, const weir_collective_algorithm *algorithm)
{
    weir_status status =
        weiri_comm_check("collective", collective == NULL ? NULL : collective->comm, "weir_collective_add");
    if (status != WEIR_OK) {
        return status;
    }
    if (algorithm == NULL || algorithm->fits == NULL || algorithm->run == NULL) {
        return invalid("weir_collective_add", algorithm == NULL         ? "algorithm is NULL"
                                              : algorithm->fits == NULL ? "algorithm.fits is NULL"
                                                                        : "algorithm.run is NULL");
    }
    if (collective->algorithm_count == WEIRI_ALGORITHMS) {
        return weiri_fail(WEIR_ERR_LIMIT, "weir_collective_add: %u algorithms are there already", WEIRI_ALGORITHMS);
    }
    collective->algorithms[collective->algorithm_count++] = *algorithm;
    return WEIR_OK;
}

weir_status weir_collective_force(weir_collective *collective, weir_collective_form form, uint32_t blocks)
{
    weir_status status =
        weiri_comm_check("collective", collective == NULL ? NULL : collective->comm, "weir_collective_force");
    if (status != WEIR_OK) {
        return status;
    }
    if ((uint32_t)form > WEIR_FORM_COPIES) {
        return weiri_fail(WEIR_ERR_INVALID, "weir_collective_force: unknown form %d", (int)form);
    }
    if (blocks > collective->sm_limit) {
        return weiri_fail(WEIR_ERR_INVALID, "weir_collective_force: blocks is %u; the limit is %u", blocks,
                          collective->sm_limit);
    }
    collective->form = form;
    collective->forced = blocks;
    return WEIR_OK;
}

weir_status weir_collective_set_factor(weir_collective *collective, const weir_factor *factor)
{
    static const char name[] = "weir_collective_set_factor";
    weir_status status = weiri_comm_check("collective", collective == NULL ? NULL : collective->comm, name);
    if (status != WEIR_OK) {
        return status;
    }
    if (factor == NULL) {
        return weiri_fail(WEIR_ERR_INVALID, "%s: factor is NULL", name);
    }
    if (factor->memory != NULL) {
        if (!weiri_op_scales((uint32_t)factor->dtype)) {
            return weiri_fail(WEIR_ERR_INVALID, "%s: the type of the factor in memory is not F64, F32, F16 or BF16",
                              name);
        }
        const uint32_t bytes = weir_dtype_bytes(factor->dtype);
        const weiri_span span = { (const char *)factor->memory, bytes };
        status = weiri_check_span(collective, name, "memory", span, bytes);
        if (status != WEIR_OK) {
            return status;
        }
    }
    const weir_dev_factor of_device = { .memory = factor->memory,
                                        .value = factor->value,
                                        .dtype = factor->memory != NULL ? (uint32_t)factor->dtype : 0 };
    collective->device.factor = of_device;
    collective->rails.device.factor = of_device;
    collective->has_factor = true;
    return WEIR_OK;
}
