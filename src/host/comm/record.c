/* record.c - the failure of a kernel as text.
 *
 * A kernel that fails stores its call with numbers and peer (weir_dev_record), its name, and then its status in the
 * control block. failure.c finds the status and asks here for the text: which kernel, what it was doing, and what did
 * not happen. The semaphore of a wait or a signal is found by the address of its token. Calls of collectives are
 * written by the function that collective.c has set. Only the first thread that fails writes a record. If it has not
 * ended that within a second, the status comes without it. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "src/host/comm/comm.h"
#include "src/host/comm/semaphore.h"
#include "weir/error.h"

#define TEXT_BYTES 160

/* Reads the kernel's name, of which the kernel may have stored only a part, and replaces unprintable bytes. */
static void read_name(const weir_dev_control *control, char name[8 * WEIR_KERNEL_NAME_WORDS + 1])
{
    const uint32_t bytes = 8 * WEIR_KERNEL_NAME_WORDS;
    for (uint32_t i = 0; i < WEIR_KERNEL_NAME_WORDS; i++) {
        const uint64_t word = weir_arch_load_relaxed_sys_u64(&control->kernel[i]);
        memcpy(name + 8 * i, &word, sizeof word);
    }
    name[bytes] = '\0';
    for (char *at = name; *at != '\0'; at++) {
        *at = *at > ' ' && *at < 0x7f ? *at : '?';
    }
}

static weir_dev_record read_record(const weir_dev_control *control)
{
    weir_dev_record record;
    uint64_t words[sizeof record / sizeof(uint64_t)];
    for (uint32_t i = 0; i < sizeof record / sizeof(uint64_t); i++) {
        words[i] = weir_arch_load_relaxed_sys_u64((const uint64_t *)&control->record + i);
    }
    memcpy(&record, words, sizeof record);
    return record;
}

/* Finds the semaphore of a wait or a signal by the address of its token. */
static void find_semaphore(const weir_comm *comm, weir_dev_note *note)
{
    for (const weir_semaphore *at = comm->semaphores.first; at != NULL; at = at->next) {
        const uint64_t place = note->numbers[0] - (uint64_t)(uintptr_t)at->device.inbound;
        if (place < (uint64_t)at->count * WEIR_CELL_BYTES) {
            note->peer = at->connection->peer;
            note->index = (uint16_t)(place / WEIR_CELL_BYTES);
            note->numbers[0] = at->tag;
            return;
        }
    }
}

static void describe_semaphore(const weir_dev_note *note, const char *what, char *text)
{
    int used = snprintf(text, TEXT_BYTES, "%s %" PRIu64, what, note->numbers[0]);
    if (note->index != 0) {
        used += snprintf(text + used, TEXT_BYTES - (size_t)used, ", number %u of its set,", note->index);
    }
    (void)snprintf(text + used, TEXT_BYTES - (size_t)used, " of rank %u", note->peer);
}

/* Describes a wait or a signal. Without a peer, no semaphore has its token. */
static void describe_token(const weir_dev_note *note, const char *call, char *text)
{
    char what[32];
    if (note->peer == WEIR_NO_PEER) {
        (void)snprintf(text, TEXT_BYTES, "%s a semaphore that is destroyed", call);
    } else {
        (void)snprintf(what, sizeof what, "%s semaphore", call);
        describe_semaphore(note, what, text);
    }
}

/* The name of a call that moves data, and the preposition in front of the peer's memory. */
static const char *access_name(uint32_t doing, const char **preposition)
{
    *preposition = doing == WEIR_DOING_GET || doing == WEIR_DOING_READ ? "of" : "to";
    switch (doing) {
    case WEIR_DOING_PUT:
        return "put";
    case WEIR_DOING_GET:
        return "get";
    case WEIR_DOING_PUT_PACKETS:
        return "packet put";
    case WEIR_DOING_UNPACK:
        return "packet unpack";
    case WEIR_DOING_EXCHANGE:
        return "packet exchange";
    case WEIR_DOING_READ:
        return "read";
    case WEIR_DOING_WRITE:
        return "write";
    default:
        return NULL;
    }
}

static void describe_access(const weir_dev_note *note, weir_status status, char *text)
{
    const char *preposition;
    const char *name = access_name(note->doing, &preposition);
    int used = snprintf(text, TEXT_BYTES, "%s of %" PRIu64 " bytes at offset %" PRIu64, name, note->numbers[1],
                        note->numbers[0]);
    if (note->index == WEIR_LOCAL_MEMORY && status == WEIR_ERR_RANGE) {
        used += snprintf(text + used, TEXT_BYTES - (size_t)used, " of local memory");
    } else if (status != WEIR_ERR_TIMEOUT) {
        used += snprintf(text + used, TEXT_BYTES - (size_t)used, " %s memory of rank %u", preposition, note->peer);
    }
    if (status == WEIR_ERR_RANGE && note->numbers[2] == WEIR_UNKNOWN_BYTES) {
        (void)snprintf(text + used, TEXT_BYTES - (size_t)used, ": out of range");
    } else if (status == WEIR_ERR_RANGE) {
        (void)snprintf(text + used, TEXT_BYTES - (size_t)used, ", which has %" PRIu64 " bytes", note->numbers[2]);
    }
}

static void describe_queue(const weir_dev_note *note, char *text)
{
    const bool waits = note->doing == WEIR_DOING_FIFO_WAIT || note->doing == WEIR_DOING_CHANNEL_WAIT;
    char what[64] = "push";
    if (waits) {
        (void)snprintf(what, sizeof what, "wait for request %" PRIu64, note->numbers[1]);
    }
    if (note->doing == WEIR_DOING_FIFO_PUSH || note->doing == WEIR_DOING_FIFO_WAIT) {
        (void)snprintf(text, TEXT_BYTES, "%s %s a fifo", what, waits ? "of" : "to");
    } else if (note->peer == WEIR_NO_PEER) {
        (void)snprintf(text, TEXT_BYTES, "%s %s channel %" PRIu64 " of a proxy", what, waits ? "of" : "to",
                       note->numbers[0]);
    } else {
        (void)snprintf(text, TEXT_BYTES, "%s %s a port channel to rank %u", what, waits ? "of" : "to", note->peer);
    }
}

/* Writes the number, or "any rank" for WEIR_ANY_RANK. Works for tags too: WEIR_ANY_TAG is the same number. */
static const char *number_or_any(uint64_t number, const char *name, char text[32])
{
    if (number == UINT32_MAX) {
        (void)snprintf(text, 32, "any %s", name);
    } else {
        (void)snprintf(text, 32, "%s %" PRIu64, name, number);
    }
    return text;
}

/* A call of a rank of a window. In these texts a rank of the communicator is a device. */
static void describe_window(const weir_dev_note *note, char *text)
{
    const uint64_t *numbers = note->numbers;
    char source[32];
    char tag[32];
    switch (note->doing) {
    case WEIR_DOING_WINDOW_AT:
        (void)snprintf(text, TEXT_BYTES, "window: rank at index %" PRIu64 " of a device with %" PRIu64 " ranks",
                       numbers[0], numbers[1]);
        break;
    case WEIR_DOING_WINDOW_RANK:
        (void)snprintf(text, TEXT_BYTES, "window: rank %" PRIu64 " of %" PRIu64, numbers[0], numbers[1]);
        break;
    case WEIR_DOING_WINDOW_MEMORY:
        (void)snprintf(text, TEXT_BYTES, "window: memory %" PRIu64 ", but the handle has %" PRIu64, numbers[0],
                       numbers[1]);
        break;
    case WEIR_DOING_WINDOW_PUT:
    case WEIR_DOING_WINDOW_GET:
        (void)snprintf(text, TEXT_BYTES,
                       "window %s of %" PRIu64 " bytes at offset %" PRIu64 " of %s, which has %" PRIu64 " bytes",
                       note->doing == WEIR_DOING_WINDOW_PUT ? "put" : "get", numbers[1], numbers[0],
                       note->index == WEIR_LOCAL_MEMORY ? "the caller's part" : "the other rank's part", numbers[2]);
        break;
    case WEIR_DOING_WINDOW_TAG:
        (void)snprintf(text, TEXT_BYTES, "window: tag %" PRIu64 " of rank %" PRIu64 "; at most %u is possible",
                       numbers[0], numbers[1], WEIR_WINDOW_TAG_MAX);
        break;
    case WEIR_DOING_WINDOW_OVERLAP:
        (void)snprintf(text, TEXT_BYTES,
                       "window: transfer of %" PRIu64 " bytes between offsets %" PRIu64 " and %" PRIu64
                       ", which overlap",
                       numbers[2], numbers[0], numbers[1]);
        break;
    case WEIR_DOING_WINDOW_NOTIFY:
        (void)snprintf(text, TEXT_BYTES,
                       "window: notify of rank %" PRIu64 " on device %u by rank %" PRIu64 " with tag %" PRIu64,
                       numbers[1], note->peer, numbers[0], numbers[2]);
        break;
    case WEIR_DOING_WINDOW_WAIT:
        (void)snprintf(text, TEXT_BYTES, "window: wait of rank %" PRIu64 " for %s, %s", numbers[0],
                       number_or_any(numbers[1], "rank", source), number_or_any(numbers[2], "tag", tag));
        break;
    case WEIR_DOING_WINDOW_NO_PORT:
        (void)snprintf(text, TEXT_BYTES,
                       "window: device %u is behind a port channel, but the kernel is compiled with "
                       "WEIR_WINDOW_NO_PORT",
                       note->peer);
        break;
    default:
        (void)snprintf(text, TEXT_BYTES, "window: barrier with device %u", note->peer);
    }
}

static void describe_halo(const weir_dev_note *note, char *text)
{
    if (note->doing == WEIR_DOING_HALO_GROUP) {
        (void)snprintf(text, TEXT_BYTES, "halo: lines need blocks of whole warps, but a block has %" PRIu64 " threads",
                       note->numbers[0]);
    } else {
        (void)snprintf(text, TEXT_BYTES, "halo: %s part %" PRIu64 " of rank %u",
                       note->doing == WEIR_DOING_HALO_PUT ? "put to" : "wait for", note->numbers[0], note->peer);
    }
}

static void describe_collective(const weir_comm *comm, const weir_dev_note *note, char *text)
{
    if (comm->failure.call_text != NULL && note->numbers[0] != WEIR_NO_CALL) {
        comm->failure.call_text(note->numbers[0], note->numbers[1], text, TEXT_BYTES);
    } else {
        (void)snprintf(text, TEXT_BYTES, "collective");
    }
    const size_t used = strlen(text);
    if (note->doing != WEIR_DOING_COLLECTIVE) {
        (void)snprintf(text + used, TEXT_BYTES - used, ", %s",
                       note->doing == WEIR_DOING_ABANDONED ? "whose collective was abandoned"
                                                           : "on memory that was deregistered or unmapped");
    }
}

/* Describes the call in which the kernel failed. False if the record does not say. */
static bool describe(const weir_comm *comm, const weir_dev_note *note, weir_status status, char *text)
{
    switch (note->doing) {
    case WEIR_DOING_WAIT:
        describe_token(note, "wait on", text);
        return true;
    case WEIR_DOING_SIGNAL:
        describe_token(note, "signal of", text);
        return true;
    case WEIR_DOING_PORT_WAIT:
        describe_semaphore(note, "wait on port channel", text);
        return true;
    case WEIR_DOING_AT:
        (void)snprintf(text, TEXT_BYTES, "semaphore %" PRIu64 " of a set of %" PRIu64 " with rank %u", note->numbers[1],
                       note->numbers[2], note->peer);
        return true;
    case WEIR_DOING_PUT:
    case WEIR_DOING_GET:
    case WEIR_DOING_PUT_PACKETS:
    case WEIR_DOING_UNPACK:
    case WEIR_DOING_EXCHANGE:
    case WEIR_DOING_READ:
    case WEIR_DOING_WRITE:
        describe_access(note, status, text);
        return true;
    case WEIR_DOING_GRID_BARRIER:
        (void)snprintf(text, TEXT_BYTES, "grid barrier");
        return true;
    case WEIR_DOING_FIFO_PUSH:
    case WEIR_DOING_FIFO_WAIT:
    case WEIR_DOING_CHANNEL_PUSH:
    case WEIR_DOING_CHANNEL_WAIT:
        describe_queue(note, text);
        return true;
    case WEIR_DOING_NIC_POST:
        (void)snprintf(text, TEXT_BYTES, "post to queue pair %" PRIu64, note->numbers[0]);
        return true;
    case WEIR_DOING_NIC_WAIT:
        (void)snprintf(text, TEXT_BYTES, "wait for post %" PRIu64 " of queue pair %" PRIu64, note->numbers[1],
                       note->numbers[0]);
        return true;
    case WEIR_DOING_NIC_NOTICE:
        (void)snprintf(text, TEXT_BYTES, "wait for notice %" PRIu64, note->numbers[1]);
        return true;
    case WEIR_DOING_COLLECTIVE:
    case WEIR_DOING_ABANDONED:
    case WEIR_DOING_DEREGISTERED:
        describe_collective(comm, note, text);
        return true;
    case WEIR_DOING_WINDOW_AT:
    case WEIR_DOING_WINDOW_PUT:
    case WEIR_DOING_WINDOW_GET:
    case WEIR_DOING_WINDOW_RANK:
    case WEIR_DOING_WINDOW_MEMORY:
    case WEIR_DOING_WINDOW_TAG:
    case WEIR_DOING_WINDOW_OVERLAP:
    case WEIR_DOING_WINDOW_NOTIFY:
    case WEIR_DOING_WINDOW_WAIT:
    case WEIR_DOING_WINDOW_BARRIER:
    case WEIR_DOING_WINDOW_NO_PORT:
        describe_window(note, text);
        return true;
    case WEIR_DOING_HALO_PUT:
    case WEIR_DOING_HALO_WAIT:
    case WEIR_DOING_HALO_GROUP:
        describe_halo(note, text);
        return true;
    default:
        return false;
    }
}

/* Describes what did not happen before the deadline. */
static void describe_missing(const weir_dev_record *record, char *text)
{
    const uint64_t ms = record->waited_ns / 1000000;
    const char *what = "nothing came";
    char from[64] = "";
    switch (record->note.doing) {
    case WEIR_DOING_GRID_BARRIER:
        what = "a block did not come";
        break;
    case WEIR_DOING_FIFO_PUSH:
    case WEIR_DOING_CHANNEL_PUSH:
    case WEIR_DOING_NIC_POST:
    case WEIR_DOING_WINDOW_NOTIFY:
        what = "there was no room";
        break;
    case WEIR_DOING_FIFO_WAIT:
    case WEIR_DOING_CHANNEL_WAIT:
    case WEIR_DOING_NIC_WAIT:
        what = "it was not completed";
        break;
    case WEIR_DOING_WINDOW_BARRIER:
        what = "it did not come";
        break;
    case WEIR_DOING_HALO_PUT:
        what = "it was not ready";
        break;
    case WEIR_DOING_UNPACK:
    case WEIR_DOING_EXCHANGE:
    case WEIR_DOING_COLLECTIVE:
        (void)snprintf(from, sizeof from, " from rank %u", record->note.peer);
        break;
    default:
        break;
    }
    (void)snprintf(text, TEXT_BYTES, "%s%s for %" PRIu64 " %s", what, from, ms % 1000 == 0 ? ms / 1000 : ms,
                   ms % 1000 == 0 ? "s" : "ms");
}

/* Describes why a wait could never end. */
static void describe_full_rings(const weir_dev_note *note, char *text)
{
    if (note->peer == WEIR_NO_PEER) {
        (void)snprintf(text, TEXT_BYTES,
                       "the rings of all devices are full and have no match; raise opts.notifications");
    } else {
        (void)snprintf(text, TEXT_BYTES, "the ring of device %u is full and has no match; raise opts.notifications",
                       note->peer);
    }
}

void weiri_record_text(const weir_comm *comm, weir_status status, char *text, size_t bytes)
{
    const weir_dev_control *control = comm->slabs.control;
    weir_dev_record record;
    char name[8 * WEIR_KERNEL_NAME_WORDS + 1];
    char kernel[sizeof name + 64];
    char doing[TEXT_BYTES];
    char why[TEXT_BYTES];
    if (__atomic_load_n(&control->error_status, __ATOMIC_ACQUIRE) == 0) { /* the record is not complete */
        (void)snprintf(text, bytes, "a kernel on %s failed: %s", comm->device->info.label, weir_status_text(status));
        return;
    }
    record = read_record(control);
    read_name(control, name);
    if (name[0] != '\0') {
        (void)snprintf(kernel, sizeof kernel, "kernel %s", name);
    } else {
        (void)snprintf(kernel, sizeof kernel, "a kernel on %s", comm->device->info.label);
    }
    if (record.note.peer == WEIR_NO_PEER &&
        (record.note.doing == WEIR_DOING_WAIT || record.note.doing == WEIR_DOING_SIGNAL)) {
        find_semaphore(comm, &record.note);
    }
    if (!describe(comm, &record.note, status, doing)) {
        (void)snprintf(text, bytes, "%s failed: %s", kernel, weir_status_text(status));
        return;
    }
    if (status == WEIR_ERR_TIMEOUT) {
        describe_missing(&record, why);
    } else if (status == WEIR_ERR_LIMIT && record.note.doing == WEIR_DOING_WINDOW_WAIT) {
        describe_full_rings(&record.note, why);
    } else {
        (void)snprintf(why, sizeof why, "%s", weir_status_text(status));
    }
    if (record.note.doing == WEIR_DOING_COLLECTIVE && record.note.numbers[0] != WEIR_NO_CALL) {
        (void)snprintf(text, bytes, "%s: %s", doing, why); /* the caller knows the call, not its kernel */
    } else if (status == WEIR_ERR_RANGE) {
        (void)snprintf(text, bytes, "%s: %s", kernel, doing); /* `doing` says why */
    } else {
        (void)snprintf(text, bytes, "%s: %s: %s", kernel, doing, why);
    }
}
