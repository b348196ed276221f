/* layout_fuzz.c - exported layouts from a peer, and layouts that the input describes.
 *
 * An input is raw bytes, or a chain of constructors with numbers of the input. An accepted layout exports to the same
 * bytes, and each of its first packed bytes lies between its true bounds. A layout that was made comes back equal from
 * export and import, and no cut of its bytes is accepted. */
#include <string.h>

#include "src/host/base/alloc.h"
#include "src/host/layout/layout.h"
#include "test/fuzz/fuzz.h"

#define STEPS_MAX 12
#define BLOCKS_MAX 6
#define RUNS_MOST 10000u
#define EXPORT_MOST ((size_t)1 << 20)

static uint32_t accepted; /* for checks of the seeds */
static uint32_t listed;

/* Looks up packed bytes as kernels do. */
static void check_places(const weir_layout *layout)
{
    const weiri_layout_form *form = &layout->form;
    const weiri_layout_list *list = form->list;
    const uint64_t most = form->nest.size < 4096 ? form->nest.size : 4096;
    for (uint64_t at = 0; at < most; at++) {
        uint64_t into;
        int64_t place = weir_layout_nest_at(&form->nest, at, &into);
        if (list != NULL) {
            const uint32_t i = weir_layout_piece_of(list->pieces, list->count, into);
            FUZZ_CHECK(list->pieces[i].prefix <= into && into < list->pieces[i + 1].prefix);
            place += list->pieces[i].place;
            into -= list->pieces[i].prefix;
            if (list->nest_of != NULL) {
                FUZZ_CHECK(list->nest_of[i] < list->nest_count);
                place += weir_layout_nest_at(&list->nests[list->nest_of[i]], into, &into);
            }
        }
        place += (int64_t)into;
        FUZZ_CHECK(place >= layout->true_bounds.lb && place < layout->true_bounds.ub);
    }
}

static void check_accepted(const weir_layout *layout, const uint8_t *data, size_t bytes)
{
    size_t length = bytes;
    uint8_t *again = (uint8_t *)weiri_alloc(1, bytes);
    FUZZ_CHECK(again != NULL);
    FUZZ_CHECK(weir_layout_export(layout, again, &length) == WEIR_OK);
    FUZZ_CHECK(length == bytes && memcmp(again, data, bytes) == 0);
    FUZZ_CHECK(weir_layout_equal(layout, layout));
    check_places(layout);
    accepted++;
    listed += layout->form.list != NULL;
    weiri_free(again);
}

static void import(const uint8_t *data, size_t bytes)
{
    weir_layout *layout = NULL;
    const weir_status status = weir_layout_import(data, bytes, &layout);
    fuzz_check_status(status);
    if (status == WEIR_OK) {
        check_accepted(layout, data, bytes);
        weir_layout_destroy(layout);
    } else {
        FUZZ_CHECK(status == WEIR_ERR_CORRUPT || status == WEIR_ERR_VERSION);
    }
}

static weir_status create_blocks(fuzz_input *in, const weir_layout *of, weir_layout **out)
{
    uint64_t lengths[BLOCKS_MAX];
    int64_t places[BLOCKS_MAX];
    const uint8_t count = fuzz_u8(in) % (BLOCKS_MAX + 1);
    for (uint8_t i = 0; i < count; i++) {
        lengths[i] = fuzz_u8(in) % 4;
        places[i] = (int8_t)fuzz_u8(in);
    }
    return (fuzz_u8(in) & 1) != 0 ? weir_layout_create_indexed(count, lengths, places, of, out)
                                  : weir_layout_create_hindexed(count, lengths, places, of, out);
}

static weir_status create_next(fuzz_input *in, const weir_layout *of, weir_layout **out)
{
    switch (fuzz_u8(in) % 4) {
    case 0: {
        const uint64_t count = fuzz_u8(in) % 5;
        return weir_layout_create_hvector(count, 1, (int16_t)fuzz_u16(in), of, out);
    }
    case 1: {
        const uint64_t count = fuzz_number(in);
        return weir_layout_create_vector(count, fuzz_u8(in) % 3, (int64_t)fuzz_number(in), of, out);
    }
    case 2: {
        const int64_t lb = (int64_t)fuzz_number(in);
        return weir_layout_create_resized(lb, (int64_t)fuzz_number(in), of, out);
    }
    default:
        return create_blocks(in, of, out);
    }
}

/* Export, import, and a cut. */
static void send(fuzz_input *in, const weir_layout *layout)
{
    size_t length = 0;
    weir_layout *again = NULL;
    FUZZ_CHECK(weir_layout_export(layout, NULL, &length) == WEIR_ERR_RANGE);
    if (length > EXPORT_MOST) {
        return;
    }
    uint8_t *data = (uint8_t *)weiri_alloc(1, length);
    FUZZ_CHECK(data != NULL);
    FUZZ_CHECK(weir_layout_export(layout, data, &length) == WEIR_OK);
    FUZZ_CHECK(weir_layout_import(data, length, &again) == WEIR_OK);
    FUZZ_CHECK(weir_layout_equal(layout, again));
    weir_layout_destroy(again);
    FUZZ_CHECK(weir_layout_import(data, fuzz_u16(in) % length, &again) == WEIR_ERR_CORRUPT);
    import(data, length);
    data[fuzz_u16(in) % length] ^= (uint8_t)(1 + fuzz_u8(in) % 255);
    import(data, length);
    weiri_free(data);
}

static void build(fuzz_input *in)
{
    weir_layout *layout = NULL;
    FUZZ_CHECK(weir_layout_create_bytes(fuzz_u8(in), &layout) == WEIR_OK);
    for (uint32_t i = 0; i < STEPS_MAX && !fuzz_end(in); i++) {
        weir_layout *next = NULL;
        const weir_status status = create_next(in, layout, &next);
        fuzz_check_status(status);
        if (status == WEIR_OK) {
            weir_layout_destroy(layout);
            layout = next;
        }
        weir_layout_info info;
        weir_layout_get_info(layout, &info);
        if (info.runs > RUNS_MOST) {
            break; /* a list of them would only take time and memory */
        }
    }
    check_places(layout);
    send(in, layout);
    weir_layout_destroy(layout);
}

void fuzz_one(fuzz_input *in)
{
    if ((fuzz_u8(in) & 1) != 0) {
        build(in);
    } else {
        size_t bytes;
        const uint8_t *data = fuzz_bytes(in, 2048, &bytes);
        import(data, bytes);
    }
}

void fuzz_seeds(void)
{
    static const int64_t places[] = { 0, 100, 300 };
    static const uint64_t lengths[] = { 1, 2, 1 };
    weir_layout *item = NULL;
    weir_layout *column = NULL;
    weir_layout *list = NULL;
    FUZZ_CHECK(weir_layout_create_bytes(4, &item) == WEIR_OK);
    FUZZ_CHECK(weir_layout_create_hvector(3, 1, 16, item, &column) == WEIR_OK);
    FUZZ_CHECK(weir_layout_create_hindexed(3, lengths, places, column, &list) == WEIR_OK);
    const weir_layout *all[] = { item, column, list };
    for (uint32_t i = 0; i < 3; i++) {
        uint8_t data[1024] = { 0 };
        size_t length = sizeof data - 1;
        FUZZ_CHECK(weir_layout_export(all[i], data + 1, &length) == WEIR_OK);
        fuzz_seed(data, 1 + length);
    }
    weir_layout_destroy(list);
    weir_layout_destroy(column);
    weir_layout_destroy(item);
    FUZZ_CHECK(accepted == 3 && listed == 1);
    /* 3 columns at stride 256, blocks of them at bytes 0, 9 and 1, and a resize. */
    static const uint8_t built[] = { 1, 4, 0, 3, 0, 1, 3, 3, 1, 0, 2, 9, 1, 1, 0, 2, 0, 7, 0, 8 };
    fuzz_seed(built, sizeof built);
    FUZZ_CHECK(accepted > 3);
}
