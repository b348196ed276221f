/* address_fuzz.c - texts that name a meeting point: unique ids and addresses.
 *
 * A text that parses must have one meaning: written again, it parses to the same. A valid unique id is spelled as by
 * weir_unique_id_create, except for its address, which has several spellings. */
#include <stdio.h>
#include <string.h>

#include "src/host/boot/bootstrap.h"
#include "test/fuzz/fuzz.h"

#define TEXT_MAX 512

static bool same_address(const weiri_address *a, const weiri_address *b)
{
    return memcmp(a->ip, b->ip, sizeof a->ip) == 0 && a->port == b->port && a->family == b->family;
}

static void check_address(const weiri_address *address, const char *interface)
{
    char formatted[WEIRI_ADDRESS_TEXT_BYTES];
    char text[WEIRI_ADDRESS_TEXT_BYTES + WEIRI_INTERFACE_BYTES + 1];
    char again_interface[WEIRI_INTERFACE_BYTES];
    weiri_address again;
    FUZZ_CHECK(address->port != 0 && (address->family == 4 || address->family == 6));
    FUZZ_CHECK(memchr(interface, '\0', WEIRI_INTERFACE_BYTES) != NULL);
    FUZZ_CHECK(weiri_address_format(address, formatted) == formatted);
    FUZZ_CHECK(memchr(formatted, '\0', sizeof formatted) != NULL);
    snprintf(text, sizeof text, "%s%s%s", interface, interface[0] == '\0' ? "" : ":", formatted);
    FUZZ_CHECK(weiri_address_parse(text, again_interface, &again) == WEIR_OK);
    FUZZ_CHECK(same_address(address, &again) && strcmp(interface, again_interface) == 0);
    (void)weiri_address_is_loopback(address);
}

/* Checks the 32 bytes of the key against the id's text. */
static void check_key(const char *text, const uint8_t *key)
{
    char digits[2 * WEIRI_AUTH_KEY_BYTES + 1];
    for (size_t i = 0; i < WEIRI_AUTH_KEY_BYTES; i++) {
        snprintf(digits + 2 * i, 3, "%02x", key[i]);
    }
    FUZZ_CHECK(strncmp(text + strlen("weir1:"), digits, strlen(digits)) == 0);
}

void fuzz_one(fuzz_input *in)
{
    char text[TEXT_MAX];
    fuzz_text(in, text, sizeof text);
    weiri_where where;
    weir_status status = weiri_where_parse(text, &where);
    fuzz_check_status(status);
    if (status == WEIR_OK) {
        FUZZ_CHECK(where.has_key == (strncmp(text, "weir1:", 6) == 0));
        if (where.has_key) {
            FUZZ_CHECK(strlen(text) < WEIR_UNIQUE_ID_BYTES);
            check_key(text, where.key);
        }
        check_address(&where.root, where.interface);
    } else {
        FUZZ_CHECK(status == WEIR_ERR_INVALID);
    }
    char interface[WEIRI_INTERFACE_BYTES];
    weiri_address address;
    status = weiri_address_parse(text, interface, &address);
    fuzz_check_status(status);
    if (status == WEIR_OK) {
        check_address(&address, interface);
    }
    weiri_address ip;
    if (weiri_address_parse_ip(text, &ip)) {
        ip.port = 1;
        check_address(&ip, "");
    }
    /* No process has made this id, so there is nothing to take. */
    FUZZ_CHECK(weiri_unique_id_take(text) == -1);
}

static void seed(const char *text) { fuzz_seed(text, strlen(text)); }

void fuzz_seeds(void)
{
    weir_unique_id id;
    FUZZ_CHECK(weir_unique_id_create("127.0.0.1", &id) == WEIR_OK);
    weir_unique_id_discard(&id);
    seed(id.text);
    seed("127.0.0.1:5000");
    seed("[::1]:65535");
    seed("eth0:10.0.0.1:5000");
    seed("eth0:[fe80::1]:1");
    seed("weir1:00:");
}
