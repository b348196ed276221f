/* life.c - how a collective ends: destroy, abandon, and what both leave behind.
 *
 * A collective remembers the streams of its kernels. When it is abandoned, it records an event on each of them, and its
 * memory is freed when all have passed (leave.h), or the streams are destroyed that refused an event, because they
 * record a graph. Graphs with its kernels may be launched later, on any stream. Such a kernel first reads the
 * collective's cells of the communicator's slab, which have the epoch, the word `abandoned` and the counts of
 * exchanges. These cells, the control block and the generations of registrations stay until the device is closed, and
 * so until the last graph is destroyed.
 */
#include <string.h>

#include "src/host/base/alloc.h"
#include "src/host/base/error.h"
#include "src/host/base/log.h"
#include "src/host/collective/collective.h"

#define IDLE_MS 1u                     /* a stream whose work does not end in this time is busy */
#define MAPPINGS WEIRI_REGISTERED_MOST /* the index of the generation of all mappings */
#define GENERATION_CELLS ((MAPPINGS + 1) * sizeof(uint64_t) / WEIR_CELL_BYTES + 1)
#define BASE_BYTES (WEIR_COLLECTIVE_RANKS * sizeof(uint64_t)) /* of a row: where its memories are mapped */
#define REGISTRATION_CELLS (GENERATION_CELLS + (WEIRI_ROWS * BASE_BYTES + WEIR_CELL_BYTES - 1) / WEIR_CELL_BYTES)

/* With more streams than these, each eager kernel has an event behind it, and streams whose events have passed are
 * forgotten: a program may make a stream for each step. */
#define STREAMS_FEW 32u

typedef struct used_stream {
    void *stream;
    void *event;
    bool ours;    /* made by the device, which knows when it is destroyed */
    bool marked;  /* the event is behind the latest kernel */
    bool pending; /* the collective was abandoned, and the stream may have had work then */
} used_stream;

struct weiri_life {
    uint64_t cell;                /* offset of the first one in the device slab */
    uint64_t generations;         /* the same, once device.generations is set; the bases are behind them */
    uint32_t ended[MAPPINGS + 1]; /* the generation of each registration, and of the mappings */
    used_stream *streams;
    uint32_t count;
    weiri_leaver leaver;
    weir_collective *next; /* in the list of collectives that were not abandoned or destroyed */
};

static pthread_mutex_t alive_mutex = PTHREAD_MUTEX_INITIALIZER;
static weir_collective *alive;

/* ---- open and close ---------------------------------------------------------------------------------------------- */

weir_status weiri_life_open(weir_collective *collective)
{
    weir_comm *comm = collective->comm;
    weiri_life *life = (weiri_life *)weiri_alloc(1, sizeof *life);
    if (life == NULL) {
        return weiri_fail_nomem("weir_collective_create");
    }
    weir_status status = weiri_cells_allocate(comm, &comm->slabs.device, WEIR_COLLECTIVE_CELLS, &life->cell);
    if (status != WEIR_OK) {
        weiri_free(life);
        return status;
    }
    uint64_t *words = (uint64_t *)weiri_slab_device(comm->slabs.device.memory, life->cell);
    collective->life = life;
    collective->device.epoch = words;
    collective->rails.device.abandoned = words + WEIR_COLLECTIVE_ABANDONED;
    return WEIR_OK;
}

void weiri_life_begin(weir_collective *collective)
{
    (void)pthread_mutex_lock(&alive_mutex);
    collective->life->next = alive;
    alive = collective;
    (void)pthread_mutex_unlock(&alive_mutex);
}

/* Takes the collective off the list; false if it is not there. Reads nothing of a collective that is gone. */
static bool end_life(const weir_collective *collective)
{
    (void)pthread_mutex_lock(&alive_mutex);
    weir_collective **link = &alive;
    while (*link != NULL && *link != collective) {
        link = &(*link)->life->next;
    }
    const bool found = *link != NULL;
    if (found) {
        *link = collective->life->next;
    }
    (void)pthread_mutex_unlock(&alive_mutex);
    return found;
}

void weiri_life_close(weir_collective *collective, bool keeps)
{
    weiri_life *life = collective->life;
    weir_comm *comm = collective->comm;
    if (life == NULL) {
        return;
    }
    if (keeps) {
        weiri_slabs_keep(comm);
    } else {
        weiri_cells_free(comm, &comm->slabs.device, WEIR_COLLECTIVE_CELLS, life->cell);
        if (collective->device.generations != NULL) {
            weiri_cells_free(comm, &comm->slabs.device, REGISTRATION_CELLS, life->generations);
        }
    }
    for (uint32_t i = 0; i < life->count; i++) {
        weir_event_destroy(comm->device, life->streams[i].event);
    }
    weiri_free(life->streams);
    weiri_free(life);
}

/* ---- registrations ----------------------------------------------------------------------------------------------- */

weir_status weiri_life_prepare_registrations(weir_collective *collective)
{
    weir_comm *comm = collective->comm;
    weiri_life *life = collective->life;
    if (collective->device.generations != NULL) {
        return WEIR_OK;
    }
    weir_status status = weiri_cells_allocate(comm, &comm->slabs.device, REGISTRATION_CELLS, &life->generations);
    if (status == WEIR_OK) {
        collective->device.generations = (uint64_t *)weiri_slab_device(comm->slabs.device.memory, life->generations);
    }
    return status;
}

const uint64_t *weiri_life_bases(const weir_collective *collective)
{
    const char *cells = (const char *)collective->device.generations;
    return cells == NULL ? NULL : (const uint64_t *)(cells + GENERATION_CELLS * WEIR_CELL_BYTES);
}

/* Of a mapping not all memories are mapped here. NULL: the row has ended. */
weir_status weiri_life_write_row(weir_collective *collective, uint32_t row, const weiri_team_memory *memory)
{
    const uint64_t at = collective->life->generations + GENERATION_CELLS * WEIR_CELL_BYTES + (row - 1) * BASE_BYTES;
    uint64_t bases[WEIR_COLLECTIVE_RANKS] = { 0 };
    for (uint32_t k = 0; k < collective->device.ranks && memory != NULL; k++) {
        const weir_memory *mapped = k == collective->device.rank ? memory->local : memory->remote[k];
        bases[k] = (uintptr_t)weir_memory_pointer(mapped);
    }
    return weir_device_copy(collective->comm->device, weiri_slab_device(collective->comm->slabs.device.memory, at),
                            bases, sizeof bases);
}

/* Begins the next generation at `index`. */
static weir_status end_generation(weir_collective *collective, uint32_t index)
{
    uint64_t *word =
        (uint64_t *)weiri_slab_device(collective->comm->slabs.device.memory, collective->life->generations) + index;
    const uint64_t now = collective->life->ended[index] + 1;
    const weir_status status = weir_device_copy(collective->comm->device, word, &now, sizeof now);
    collective->life->ended[index] += status == WEIR_OK;
    return status;
}

weir_status weiri_life_end_registration(weir_collective *collective, uint32_t index)
{
    const weir_status status = end_generation(collective, index);
    return status == WEIR_OK ? weiri_life_write_row(collective, index + 1, NULL) : status;
}

weir_status weiri_life_end_mappings(weir_collective *collective) { return end_generation(collective, MAPPINGS); }

static uint64_t life_of(const weir_collective *collective, uint32_t index)
{
    return (uint64_t)(index + 1) | (uint64_t)(collective->life->ended[index] & 0xffffff) << 8;
}

uint64_t weiri_life_of(const weir_collective *collective, const weiri_team_memory *memory)
{
    return memory == NULL ? 0 : life_of(collective, (uint32_t)(memory - collective->registered));
}

uint64_t weiri_life_of_mappings(const weir_collective *collective) { return life_of(collective, MAPPINGS); }

/* ---- streams ----------------------------------------------------------------------------------------------------- */

/* A stream that was destroyed has no work. */
static bool is_gone(const weir_device *device, const used_stream *used)
{
    return used->ours && !weiri_stream_is_ours(device, used->stream);
}

static bool has_passed(weir_device *device, const used_stream *used)
{
    double ms;
    return used->marked ? weir_event_elapsed(device, used->event, used->event, &ms) != WEIR_PENDING
                        : is_gone(device, used);
}

/* Records the event of the stream, unless the stream records a graph. */
static void mark(weir_device *device, used_stream *used)
{
    uint64_t recording = 0;
    used->marked = weiri_stream_recording(device, used->stream, &recording) == WEIR_OK && recording == 0 &&
                   weir_event_record(device, used->event, used->stream) == WEIR_OK;
}

static used_stream *find(const weiri_life *life, const void *stream)
{
    for (uint32_t i = life->count; i > 0; i--) {
        if (life->streams[i - 1].stream == stream) {
            return &life->streams[i - 1];
        }
    }
    return NULL;
}

static void forget_passed(weir_device *device, weiri_life *life)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < life->count; i++) {
        if (is_gone(device, &life->streams[i]) || has_passed(device, &life->streams[i])) {
            weir_event_destroy(device, life->streams[i].event);
        } else {
            life->streams[kept++] = life->streams[i];
        }
    }
    life->count = kept;
}

weir_status weiri_life_use(const weir_collective *collective, void *stream)
{
    weiri_life *life = collective->life;
    weir_device *device = collective->comm->device;
    used_stream *found = find(life, stream);
    if (found != NULL) {
        found->marked = false;
        return WEIR_OK;
    }
    if (life->count >= STREAMS_FEW) {
        forget_passed(device, life);
    }
    used_stream *all = (used_stream *)weiri_realloc(life->streams, (life->count + 1) * sizeof *all);
    if (all == NULL) {
        return weiri_fail_nomem("collective: stream");
    }
    life->streams = all;
    const used_stream used = { .stream = stream, .ours = weiri_stream_is_ours(device, stream) };
    all[life->count] = used;
    weir_status status = weir_event_create(device, &all[life->count].event);
    life->count += status == WEIR_OK;
    return status;
}

void weiri_life_used(const weir_collective *collective, void *stream)
{
    if (collective->life->count >= STREAMS_FEW) {
        mark(collective->comm->device, find(collective->life, stream));
    }
}

/* A few words about the stream's work, or NULL if the stream is idle or gone. A recording stream cannot say whether its
 * earlier work has ended, and its graph may have calls of the collective. */
static const char *work_of(weir_device *device, const used_stream *used)
{
    uint64_t recording = 0;
    if (is_gone(device, used) || weiri_stream_recording(device, used->stream, &recording) != WEIR_OK) {
        return NULL;
    }
    return recording != 0                                                        ? "records a graph"
           : weir_stream_wait(device, used->stream, IDLE_MS) == WEIR_ERR_TIMEOUT ? "still has work"
                                                                                 : NULL;
}

const char *weiri_life_work(const weir_collective *collective, bool foreign)
{
    const char *work = NULL;
    for (uint32_t i = 0; i < collective->life->count && work == NULL; i++) {
        const used_stream *used = &collective->life->streams[i];
        const bool asks = used->ours || weiri_stream_is_default(used->stream) || foreign;
        work = asks ? work_of(collective->comm->device, used) : NULL;
    }
    return work;
}

/* ---- the end ----------------------------------------------------------------------------------------------------- */

static bool may_end(void *context)
{
    const weir_collective *collective = (const weir_collective *)context;
    bool passed = true;
    for (uint32_t i = 0; i < collective->life->count && passed; i++) {
        const used_stream *used = &collective->life->streams[i];
        passed = !used->pending || has_passed(collective->comm->device, used);
    }
    return passed;
}

static void end(void *context) { weiri_collective_close((weir_collective *)context, true); }

/* Kernels that begin from here on end in an error. */
static void leave(weir_collective *collective)
{
    static const uint64_t one = 1;
    weiri_life *life = collective->life;
    weir_device *device = collective->comm->device;
    uint64_t *word =
        (uint64_t *)weiri_slab_device(collective->comm->slabs.device.memory, life->cell) + WEIR_COLLECTIVE_ABANDONED;
    if (weir_device_copy(device, word, &one, sizeof one) != WEIR_OK) {
        weiri_log(WEIR_LOG_ERROR, "weir_collective_abandon: its memory is kept: %s", weir_last_error());
        return;
    }
    for (uint32_t i = 0; i < life->count; i++) {
        used_stream *used = &life->streams[i];
        used->pending = !is_gone(device, used);
        if (used->pending) {
            mark(device, used);
        }
        if (used->pending && !used->marked && !used->ours) {
            weiri_log(WEIR_LOG_ERROR, "weir_collective_abandon: its memory is kept: a stream of its operations that "
                                      "weir did not make records a graph, or takes no event");
            return;
        }
    }
    life->leaver.may_end = may_end;
    life->leaver.end = end;
    life->leaver.context = collective;
    weiri_leave(&life->leaver);
}

void weir_collective_abandon(weir_collective *collective)
{
    if (collective != NULL && end_life(collective) && !weiri_comm_forked(collective->comm)) {
        leave(collective);
    }
}

void weir_collective_destroy(weir_collective *collective)
{
    if (collective == NULL || weiri_comm_forked(collective->comm) || !end_life(collective)) {
        return;
    }
    const char *work = weiri_life_work(collective, false);
    if (work != NULL) {
        weiri_log(WEIR_LOG_ERROR,
                  "weir_collective_destroy of rank %u: a stream of its operations %s; the collective is abandoned",
                  collective->comm->rank, work);
        leave(collective);
        return;
    }
    weiri_collective_close(collective, false);
}
