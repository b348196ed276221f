/* message.c - messages between the two ends of a queue, and carrying out those of the peer; see ofi/queue.h.
 *
 * A message is written as bytes and injected. One that arrives is checked for this queue's name, its number and its
 * acknowledgement, and put into the inbox. weiri_ofi_handle takes the inbox in order: values and adds change memory
 * here, the bytes of a get are written back to the peer, and a landing is copied to its place. A message counts as
 * carried out when its copies have ended, and weiri_ofi_acknowledge reports that number. The first message of unknown
 * memory is refused, and none after it is begun. */
#include "src/host/base/error.h"
#include "src/host/base/wire.h"
#include "src/transport/ofi/queue.h"

static bool is_numbered(const weiri_ofi_message *message)
{
    return message->kind >= WEIRI_OFI_VALUE && message->kind <= WEIRI_OFI_LAND;
}

static void write_message(uint8_t *at, const weiri_ofi_message *message)
{
    weiri_writer w = weiri_writer_init(at, WEIRI_OFI_MESSAGE_BYTES);
    weiri_write_u64(&w, message->token);
    weiri_write_u64(&w, message->number);
    weiri_write_u64(&w, message->done);
    weiri_write_u16(&w, message->kind);
    weiri_write_u16(&w, message->bytes);
    weiri_write_u32(&w, message->place.slot);
    weiri_write_u64(&w, message->place.id);
    weiri_write_u64(&w, message->place.offset);
    weiri_write_u64(&w, message->value);
    weiri_write_u64(&w, message->key);
    weiri_write_u64(&w, message->address);
}

static bool read_message(const uint8_t *at, size_t bytes, weiri_ofi_message *message)
{
    weiri_reader r = weiri_reader_init(at, bytes);
    message->token = weiri_read_u64(&r);
    message->number = weiri_read_u64(&r);
    message->done = weiri_read_u64(&r);
    message->kind = weiri_read_u16(&r);
    message->bytes = weiri_read_u16(&r);
    message->place.slot = weiri_read_u32(&r);
    message->place.id = weiri_read_u64(&r);
    message->place.offset = weiri_read_u64(&r);
    message->value = weiri_read_u64(&r);
    message->key = weiri_read_u64(&r);
    message->address = weiri_read_u64(&r);
    message->copy = 0;
    return weiri_reader_done(&r);
}

/* ---- sending --------------------------------------------------------------------------------------------- */

ssize_t weiri_ofi_send(weiri_ofi_queue *queue, weiri_ofi_message *message)
{
    uint8_t bytes[WEIRI_OFI_MESSAGE_BYTES];
    const bool numbered = is_numbered(message);
    if (numbered && queue->sent - queue->acked == WEIRI_OFI_DEPTH) {
        return -FI_EAGAIN; /* the peer's inbox is full */
    }
    message->token = queue->peer_token;
    message->number = numbered ? queue->sent + 1 : 0;
    message->done = queue->handled;
    write_message(bytes, message);
    ssize_t error = fi_inject(queue->ep, bytes, sizeof bytes, queue->peer);
    if (error == 0) {
        queue->sent += numbered;
        queue->reported = queue->handled;
        queue->established = true;
        queue->quiet_ns = 0;
        queue->no_room_ns = 0;
    } else if (error == -FI_EAGAIN) {
        queue->blocked = true;
    }
    return error;
}

weir_status weiri_ofi_acknowledge(weiri_ofi_queue *queue)
{
    const bool refuse = queue->refused && !queue->refusal_sent && queue->handled == queue->begun;
    if (!weiri_ofi_has_room(queue) || (queue->reported == queue->handled && !refuse)) {
        return WEIR_OK;
    }
    weiri_ofi_message message = { .kind = refuse ? WEIRI_OFI_REFUSED : WEIRI_OFI_DONE };
    ssize_t error = weiri_ofi_send(queue, &message);
    queue->refusal_sent = queue->refusal_sent || (error == 0 && refuse);
    return weiri_ofi_check(queue, error);
}

/* ---- carrying out ---------------------------------------------------------------------------------------- */

/* The next message is carried out; if `number` is not 0, once that copy has ended. */
static void has_begun(weiri_ofi_queue *queue, uint64_t number)
{
    queue->inbox[++queue->begun % WEIRI_OFI_DEPTH].copy = number;
}

/* Refuses the message if `status` is WEIR_ERR_RANGE: its memory does not exist. Any other error fails the queue. */
static weir_status refuse(weiri_ofi_queue *queue, weir_status status)
{
    if (status == WEIR_ERR_RANGE) {
        queue->refused = true;
        return WEIR_OK;
    }
    return status == WEIR_OK ? WEIR_OK : weiri_ofi_fail_queue(queue, status);
}

/* Counts the messages that were carried out. */
static weir_status settle(weiri_ofi_queue *queue)
{
    weir_status status = WEIR_OK;
    bool ended = true;
    while (status == WEIR_OK && queue->handled < queue->begun) {
        const uint64_t copy = queue->inbox[(queue->handled + 1) % WEIRI_OFI_DEPTH].copy;
        status = weiri_ofi_has_ended(queue, WEIRI_OFI_IN, copy, &ended);
        if (!ended) {
            break;
        }
        queue->handled++;
    }
    return status;
}

/* Begins to copy a landing to its place. */
static weir_status land(weiri_ofi_queue *queue, const weiri_ofi_message *message)
{
    uint64_t number = 0;
    if (queue->landing.host == NULL || message->address >= WEIRI_OFI_LANDINGS || message->value > WEIRI_OFI_CHUNK) {
        return refuse(queue, WEIR_ERR_RANGE);
    }
    const uint64_t at = message->address * WEIRI_OFI_CHUNK;
    const weiri_ofi_pinned from = { queue->landing.host + at, (char *)queue->landing.device + at };
    weir_status status = weiri_ofi_begin_copy(queue, WEIRI_OFI_IN, &message->place, &from, message->value, &number);
    if (status == WEIR_OK) {
        has_begun(queue, number);
    }
    return refuse(queue, status);
}

/* Begins to copy the data of a get into chunks. */
static weir_status load(weiri_ofi_queue *queue, const weiri_ofi_message *message)
{
    weir_status status = WEIR_OK;
    while (status == WEIR_OK && queue->loaded < message->value) {
        weiri_ofi_chunk *chunk = &queue->serves[queue->loads % WEIRI_OFI_SERVES];
        const uint64_t left = message->value - queue->loaded;
        weiri_ofi_place place = message->place;
        if (chunk->busy) {
            break;
        }
        place.offset += queue->loaded;
        chunk->bytes = left < WEIRI_OFI_CHUNK ? left : WEIRI_OFI_CHUNK;
        status = weiri_ofi_begin_copy(queue, WEIRI_OFI_OUT, &place, &chunk->memory, chunk->bytes, &chunk->copy);
        if (status == WEIR_OK) {
            chunk->busy = true;
            queue->loads++;
            queue->loaded += chunk->bytes;
        }
    }
    return refuse(queue, status);
}

/* Writes filled chunks into the peer's memory. */
static weir_status give(weiri_ofi_queue *queue, const weiri_ofi_message *message)
{
    weir_status status = WEIR_OK;
    bool ended = false;
    while (status == WEIR_OK && weiri_ofi_has_room(queue) && queue->unloads < queue->loads) {
        weiri_ofi_chunk *chunk = &queue->serves[queue->unloads % WEIRI_OFI_SERVES];
        const weiri_ofi_op what = { .chunk = chunk };
        status = weiri_ofi_has_ended(queue, WEIRI_OFI_OUT, chunk->copy, &ended);
        if (!ended) {
            break;
        }
        ssize_t error = weiri_ofi_write_out(queue, &what, chunk->memory.host, fi_mr_desc(queue->mr), chunk->bytes,
                                            message->address + queue->served, message->key);
        if (error == 0) {
            queue->unloads++;
            queue->served += chunk->bytes;
        }
        status = weiri_ofi_check(queue, error);
    }
    return status;
}

/* Writes the data of a get into the peer's memory, from memory that is not staged. */
static weir_status copy_out(weiri_ofi_queue *queue, const weiri_ofi_message *message, uint8_t *from, void *desc)
{
    static const weiri_ofi_op what;
    weir_status status = WEIR_OK;
    while (status == WEIR_OK && weiri_ofi_has_room(queue) && queue->served < message->value) {
        const uint64_t left = message->value - queue->served;
        const uint64_t bytes = left < queue->slice ? left : queue->slice;
        ssize_t error = weiri_ofi_write_out(queue, &what, from + queue->served, desc, bytes,
                                            message->address + queue->served, message->key);
        queue->served += error == 0 ? bytes : 0;
        status = weiri_ofi_check(queue, error);
    }
    return status;
}

/* Carries out a get as far as there is room. */
static weir_status serve(weiri_ofi_queue *queue, const weiri_ofi_message *message)
{
    uint8_t *from = NULL;
    void *desc = NULL;
    weir_status status = weiri_ofi_find_place(queue->domain, &message->place, message->value, &from, &desc);
    if (status != WEIR_OK) {
        return refuse(queue, status);
    }
    if (from != NULL) {
        status = copy_out(queue, message, from, desc);
    } else {
        status = load(queue, message);
        if (status == WEIR_OK) {
            status = give(queue, message);
        }
    }
    if (status == WEIR_OK && queue->served == message->value) {
        queue->served = 0;
        queue->loaded = 0;
        has_begun(queue, 0);
    }
    return status;
}

static weir_status store(weiri_ofi_queue *queue, const weiri_ofi_message *message)
{
    uint64_t number = 0;
    weir_status status =
        message->kind == WEIRI_OFI_ADD
            ? weiri_ofi_add_here(queue->domain, &message->place, message->value)
            : weiri_ofi_store(queue->domain, &message->place, message->value, message->bytes, &queue->word, &number);
    if (status == WEIR_OK) {
        queue->last[WEIRI_OFI_IN] = number != 0 ? number : queue->last[WEIRI_OFI_IN];
        has_begun(queue, number);
    }
    return refuse(queue, status);
}

weir_status weiri_ofi_handle(weiri_ofi_queue *queue)
{
    weir_status status = settle(queue);
    while (status == WEIR_OK && !queue->refused && queue->begun < queue->arrived) {
        const weiri_ofi_message *message = &queue->inbox[(queue->begun + 1) % WEIRI_OFI_DEPTH];
        const uint64_t begun = queue->begun;
        if (message->kind == WEIRI_OFI_LAND) {
            status = land(queue, message);
        } else if (queue->handled != queue->begun) {
            break;
        } else {
            status = message->kind == WEIRI_OFI_GET ? serve(queue, message) : store(queue, message);
        }
        if (status == WEIR_OK) {
            status = settle(queue);
        }
        if (queue->begun == begun) {
            break;
        }
    }
    return status;
}

/* ---- receiving ------------------------------------------------------------------------------------------- */

static uint8_t *message_at(weiri_ofi_queue *queue, size_t receive)
{
    return queue->messages + receive * WEIRI_OFI_MESSAGE_BYTES;
}

weir_status weiri_ofi_receive(weiri_ofi_queue *queue, size_t index)
{
    ssize_t error = fi_recv(queue->ep, message_at(queue, index), WEIRI_OFI_MESSAGE_BYTES, fi_mr_desc(queue->mr),
                            FI_ADDR_UNSPEC, &queue->receives[index].context);
    return error == 0 ? WEIR_OK : weiri_ofi_fail((int)error, "ofi: queue: receive");
}

static weir_status take_message(weiri_ofi_queue *queue, const weiri_ofi_message *message)
{
    if (message->done < queue->acked || message->done > queue->sent) {
        return weiri_ofi_fail_queue(
            queue,
            weiri_fail(WEIR_ERR_CORRUPT, "ofi: queue: the peer acknowledges messages that this rank did not send"));
    }
    queue->acked = message->done;
    queue->quiet_ns = 0;
    queue->no_room_ns = 0;
    queue->established = true;
    if (message->kind == WEIRI_OFI_REFUSED) {
        return weiri_ofi_fail_queue(
            queue, weiri_fail(WEIR_ERR_REMOTE, "ofi: queue: the peer refused a value, add, get or put: its memory is "
                                               "too small or not registered any more"));
    }
    if (!is_numbered(message)) {
        return WEIR_OK;
    }
    if (message->number != queue->arrived + 1 || queue->arrived - queue->handled >= WEIRI_OFI_DEPTH) {
        return weiri_ofi_fail_queue(
            queue, weiri_fail(WEIR_ERR_REMOTE, "ofi: queue: messages of the peer were lost with its connection"));
    }
    queue->arrived++;
    queue->inbox[message->number % WEIRI_OFI_DEPTH] = *message;
    return WEIR_OK;
}

weir_status weiri_ofi_take_message(weiri_ofi_queue *queue, size_t index, size_t bytes)
{
    weiri_ofi_message message;
    bool ours = read_message(message_at(queue, index), bytes <= WEIRI_OFI_MESSAGE_BYTES ? bytes : 0, &message) &&
                message.token == queue->token && message.kind >= WEIRI_OFI_VALUE && message.kind <= WEIRI_OFI_REFUSED;
    weir_status status = weiri_ofi_receive(queue, index);
    if (status != WEIR_OK) {
        return weiri_ofi_fail_queue(queue, status);
    }
    return ours ? take_message(queue, &message) : WEIR_OK;
}
