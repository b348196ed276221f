/* ofi_letter.c - queues of the transport ofi: letters, and what the peer asks for by them; see ofi_queue.h. */
#include "src/host/base/error.h"
#include "src/host/base/wire.h"
#include "src/transport/ofi_queue.h"

uint8_t *weiri_ofi_letter_out(weiri_ofi_queue *queue, uint64_t number)
{
    return queue->letters + number % WEIRI_OFI_DEPTH * WEIRI_OFI_LETTER_BYTES;
}

static uint8_t *letter_in(weiri_ofi_queue *queue, size_t receive)
{
    return queue->letters + (WEIRI_OFI_DEPTH + receive) * WEIRI_OFI_LETTER_BYTES;
}

static uint8_t *letter_told(weiri_ofi_queue *queue)
{
    return queue->letters + (WEIRI_OFI_DEPTH + WEIRI_OFI_RECEIVES) * WEIRI_OFI_LETTER_BYTES;
}

void weiri_ofi_write_letter(uint8_t *at, const weiri_ofi_letter *letter)
{
    weiri_writer w = weiri_writer_init(at, WEIRI_OFI_LETTER_BYTES);
    weiri_write_u64(&w, letter->token);
    weiri_write_u64(&w, letter->number);
    weiri_write_u16(&w, letter->kind);
    weiri_write_u16(&w, letter->bytes);
    weiri_write_u32(&w, letter->slot);
    weiri_write_u64(&w, letter->id);
    weiri_write_u64(&w, letter->offset);
    weiri_write_u64(&w, letter->value);
    weiri_write_u64(&w, letter->key);
    weiri_write_u64(&w, letter->address);
}

static bool read_letter(const uint8_t *at, size_t bytes, weiri_ofi_letter *letter)
{
    weiri_reader r = weiri_reader_init(at, bytes);
    letter->token = weiri_read_u64(&r);
    letter->number = weiri_read_u64(&r);
    letter->kind = weiri_read_u16(&r);
    letter->bytes = weiri_read_u16(&r);
    letter->slot = weiri_read_u32(&r);
    letter->id = weiri_read_u64(&r);
    letter->offset = weiri_read_u64(&r);
    letter->value = weiri_read_u64(&r);
    letter->key = weiri_read_u64(&r);
    letter->address = weiri_read_u64(&r);
    return weiri_reader_done(&r);
}

weir_status weiri_ofi_receive(weiri_ofi_queue *queue, size_t index)
{
    ssize_t error = fi_recv(queue->ep, letter_in(queue, index), WEIRI_OFI_LETTER_BYTES, fi_mr_desc(queue->mr),
                            FI_ADDR_UNSPEC, &queue->receives[index].context);
    return error == 0 ? WEIR_OK : weiri_ofi_fail((int)error, "ofi: queue: receive");
}

/* Writes what a letter asks for into the peer's memory, as far as there is room. */
static weir_status serve(weiri_ofi_queue *queue, const weiri_ofi_letter *letter)
{
    weir_status status = WEIR_OK;
    do {
        uint64_t left = letter->value - queue->served;
        uint64_t bytes = left < queue->slice ? left : queue->slice;
        void *desc;
        uint8_t *from =
            weiri_ofi_place(queue->domain, letter->slot, letter->id, letter->offset + queue->served, bytes, &desc);
        if (from == NULL || letter->value > UINT64_MAX - letter->offset) {
            queue->refused = true;
            return WEIR_OK;
        }
        ssize_t error = bytes == 0 ? 0
                                   : weiri_ofi_write_out(queue, NULL, from, desc, bytes,
                                                         letter->address + queue->served, letter->key);
        queue->served += error == 0 ? bytes : 0;
        status = weiri_ofi_check(queue, error);
    } while (status == WEIR_OK && weiri_ofi_has_room(queue) && queue->served < letter->value);
    if (queue->served == letter->value) {
        queue->served = 0;
        queue->handled++;
    }
    return status;
}

weir_status weiri_ofi_handle(weiri_ofi_queue *queue)
{
    weir_status status = WEIR_OK;
    while (status == WEIR_OK && !queue->refused && queue->handled < queue->arrived) {
        const weiri_ofi_letter *letter = &queue->inbox[(queue->handled + 1) % WEIRI_OFI_DEPTH];
        if (letter->kind == WEIRI_OFI_GET) {
            if (!weiri_ofi_has_room(queue)) {
                break;
            }
            status = serve(queue, letter);
        } else if (weiri_ofi_store(queue->domain, letter->slot, letter->id, letter->offset, letter->value,
                                   letter->bytes)) {
            queue->handled++;
        } else {
            queue->refused = true;
        }
    }
    return status;
}

weir_status weiri_ofi_acknowledge(weiri_ofi_queue *queue)
{
    bool refuse = queue->refused && !queue->refusal_told;
    if (!weiri_ofi_has_room(queue) || queue->telling || (queue->told == queue->handled && !refuse)) {
        return WEIR_OK;
    }
    weiri_ofi_letter letter = {
        .token = queue->peer_token,
        .number = queue->handled,
        .kind = refuse ? WEIRI_OFI_REFUSED : WEIRI_OFI_DONE,
    };
    weiri_ofi_write_letter(letter_told(queue), &letter);
    ssize_t error = weiri_ofi_send_out(queue, NULL, letter_told(queue));
    if (error == 0) {
        queue->told = letter.number;
        queue->refusal_told = refuse;
    }
    return weiri_ofi_check(queue, error);
}

static weir_status take_letter(weiri_ofi_queue *queue, const weiri_ofi_letter *letter)
{
    if (letter->kind == WEIRI_OFI_VALUE || letter->kind == WEIRI_OFI_GET) {
        if (letter->number != queue->arrived + 1 || queue->arrived - queue->handled >= WEIRI_OFI_DEPTH) {
            return weiri_ofi_fail_queue(queue, weiri_fail(WEIR_ERR_REMOTE,
                                                          "ofi: queue: what the peer has posted was lost with "
                                                          "its connection"));
        }
        queue->arrived++;
        queue->inbox[letter->number % WEIRI_OFI_DEPTH] = *letter;
        return WEIR_OK;
    }
    if (letter->number < queue->acked || letter->number > queue->sent) {
        return weiri_ofi_fail_queue(
            queue, weiri_fail(WEIR_ERR_CORRUPT, "ofi: queue: the peer acknowledges what was not posted"));
    }
    queue->acked = letter->number;
    queue->quiet_ns = 0;
    return letter->kind == WEIRI_OFI_DONE
               ? WEIR_OK
               : weiri_ofi_fail_queue(queue, weiri_fail(WEIR_ERR_REMOTE,
                                                        "ofi: queue: the peer refused a value or get: it is "
                                                        "beyond its memory, or that is not registered any more"));
}

weir_status weiri_ofi_take_letter(weiri_ofi_queue *queue, size_t index, size_t bytes)
{
    weiri_ofi_letter letter;
    bool ours = read_letter(letter_in(queue, index), bytes <= WEIRI_OFI_LETTER_BYTES ? bytes : 0, &letter) &&
                letter.token == queue->token && letter.kind >= WEIRI_OFI_VALUE && letter.kind <= WEIRI_OFI_REFUSED;
    weir_status status = weiri_ofi_receive(queue, index);
    if (status != WEIR_OK) {
        return weiri_ofi_fail_queue(queue, status);
    }
    return ours ? take_letter(queue, &letter) : WEIR_OK;
}
