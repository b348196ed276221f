/* message.c - messages of a bootstrap, and queues of them; see boot/message.h.
 *
 * A message that is sent begins here, with a copy of its payload, whose hash is in the head of the frame. conn.c seals
 * the head and writes frame and payload when the message is the first in the queue of its connection. Messages that are
 * received are made by conn.c and wait in queues, too. A queue never allocates: the messages are its links. */
#include <string.h>

#include "src/host/base/alloc.h"
#include "src/host/boot/bootstrap.h"

void weiri_frame_write(weiri_writer *w, uint32_t kind, uint64_t tag, const void *payload, uint64_t bytes)
{
    uint8_t hash[WEIRI_HASH_BYTES];
    weiri_hash_all(payload, bytes, hash);
    weiri_write_u32(w, kind);
    weiri_write_u64(w, tag);
    weiri_write_u64(w, bytes);
    weiri_write_bytes(w, hash, sizeof hash);
}

weiri_message *weiri_message_create(uint32_t kind, uint64_t tag, const void *head, size_t head_bytes, const void *data,
                                    size_t bytes)
{
    weiri_message *message = (weiri_message *)weiri_alloc(1, sizeof *message);
    if (message == NULL) {
        return NULL;
    }
    message->kind = kind;
    message->tag = tag;
    message->bytes = head_bytes + bytes;
    message->capacity = message->bytes;
    if (message->bytes > 0) {
        message->data = (uint8_t *)weiri_alloc(message->bytes, 1);
        if (message->data == NULL) {
            weiri_free(message);
            return NULL;
        }
    }
    if (head_bytes > 0) {
        memcpy(message->data, head, head_bytes);
    }
    if (bytes > 0) {
        memcpy(message->data + head_bytes, data, bytes);
    }
    weiri_writer w = weiri_writer_init(message->frame, sizeof message->frame);
    weiri_frame_write(&w, kind, tag, message->data, message->bytes);
    return message;
}

void weiri_message_free(weiri_message *message)
{
    if (message != NULL) {
        weiri_free(message->data);
        weiri_free(message);
    }
}

void weiri_message_queue_push(weiri_message_queue *queue, weiri_message *message)
{
    message->next = NULL;
    if (queue->tail == NULL) {
        queue->head = message;
    } else {
        queue->tail->next = message;
    }
    queue->tail = message;
}

void weiri_message_queue_unlink(weiri_message_queue *queue, weiri_message *before, weiri_message *message)
{
    if (before == NULL) {
        queue->head = message->next;
    } else {
        before->next = message->next;
    }
    if (queue->tail == message) {
        queue->tail = before;
    }
}

weiri_message *weiri_message_queue_pop(weiri_message_queue *queue)
{
    weiri_message *message = queue->head;
    if (message != NULL) {
        weiri_message_queue_unlink(queue, NULL, message);
    }
    return message;
}

void weiri_message_queue_clear(weiri_message_queue *queue)
{
    weiri_message *message;
    while ((message = weiri_message_queue_pop(queue)) != NULL) {
        weiri_message_free(message);
    }
}
