// Types of requests: their table, and the check that the host and kernels share.
#include <gtest/gtest.h>

#include <set>
#include <string>

#include "weir/device/impl/request_check.h"

namespace {

struct row {
    uint32_t bits;
    const char *text;
};

const row verbs[] = {
#define ROW(name, text, check) { WEIR_REQUEST_##name, text },
    WEIR_REQUEST_VERBS(ROW)
#undef ROW
};
const row modifiers[] = {
#define ROW(name, text) { WEIR_REQUEST_##name, text },
    WEIR_REQUEST_MODIFIERS(ROW)
#undef ROW
};

constexpr uint64_t SIZE = 4096;

weir_dev_port_memory memory(uint32_t kinds)
{
    weir_dev_port_memory made = {};
    made.bytes = SIZE;
    made.kinds = kinds;
    return made;
}

weir_status check(uint32_t type, uint64_t remote_offset, uint64_t local_offset, uint64_t bytes, uint32_t remote_kinds,
                  uint32_t local_kinds)
{
    weir_request request = {};
    request.type = static_cast<uint16_t>(type);
    request.remote_offset = remote_offset;
    request.local_offset = local_offset;
    request.bytes = bytes;
    const weir_dev_port_memory remote = memory(remote_kinds);
    const weir_dev_port_memory local = memory(local_kinds);
    return weir_request_check(&request, &remote, &local);
}

constexpr uint32_t REMOTE = WEIR_PORT_MEMORY_REMOTE | WEIR_PORT_MEMORY_ADDS;
constexpr uint32_t LOCAL = WEIR_PORT_MEMORY_LOCAL;

TEST(RequestTypes, RowsHaveBitsAndNamesOfTheirOwn)
{
    std::set<std::string> names;
    for (const row &verb : verbs) {
        EXPECT_EQ(verb.bits & ~WEIR_REQUEST_VERB, 0u);
        EXPECT_NE(verb.bits, 0u);
        EXPECT_TRUE(names.insert(verb.text).second) << verb.text;
    }
    uint32_t all = 0;
    for (const row &modifier : modifiers) {
        EXPECT_EQ(modifier.bits & (WEIR_REQUEST_VERB | all), 0u);
        EXPECT_EQ(modifier.bits & (modifier.bits - 1), 0u);
        all |= modifier.bits;
        EXPECT_TRUE(names.insert(modifier.text).second) << modifier.text;
    }
    EXPECT_EQ(all + WEIR_REQUEST_VERB + 1, static_cast<uint32_t>(WEIR_REQUEST_TYPES));
    EXPECT_EQ(WEIR_REQUEST_PUT_SIGNAL_FLUSH, WEIR_REQUEST_PUT | WEIR_REQUEST_SIGNAL | WEIR_REQUEST_FLUSH);
}

// All verbs with all modifiers, and nothing else, are types.
TEST(RequestTypes, VerbsTimesModifiersLessNothing)
{
    uint32_t count = 0;
    for (uint32_t type = 0; type < 0x10000; type++) {
        count += weir_request_is_type(type) != 0;
    }
    EXPECT_EQ(count, ((sizeof verbs / sizeof verbs[0] + 1) << (sizeof modifiers / sizeof modifiers[0])) - 1);
    EXPECT_FALSE(weir_request_is_type(0));
    EXPECT_FALSE(weir_request_is_type(WEIR_REQUEST_TYPES));
    EXPECT_FALSE(weir_request_is_type(WEIR_REQUEST_TYPES | WEIR_REQUEST_PUT));
    EXPECT_FALSE(weir_request_is_type(WEIR_REQUEST_USER));
    EXPECT_EQ(check(0, 0, 0, 0, REMOTE, LOCAL), WEIR_ERR_INVALID);
    EXPECT_EQ(check(WEIR_REQUEST_VERBS_END, 0, 0, 0, REMOTE, LOCAL), WEIR_ERR_INVALID);
    EXPECT_EQ(check(WEIR_REQUEST_USER | WEIR_REQUEST_PUT, 0, 0, 0, REMOTE, LOCAL), WEIR_ERR_INVALID);
}

// A modifier does not change the check of its verb; without a verb no field is checked.
TEST(RequestTypes, FieldsAreThoseOfTheVerb)
{
    for (uint32_t bits = 0; bits < WEIR_REQUEST_TYPES; bits += 16) {
        for (uint32_t move : { WEIR_REQUEST_PUT, WEIR_REQUEST_GET }) {
            const uint32_t type = move | bits;
            EXPECT_EQ(check(type, 0, 0, SIZE, REMOTE, LOCAL), WEIR_OK);
            EXPECT_EQ(check(type, SIZE, SIZE, 0, REMOTE, LOCAL), WEIR_OK);
            EXPECT_EQ(check(type, 1, 0, SIZE, REMOTE, LOCAL), WEIR_ERR_RANGE);
            EXPECT_EQ(check(type, 0, 1, SIZE, REMOTE, LOCAL), WEIR_ERR_RANGE);
            EXPECT_EQ(check(type, UINT64_MAX, 0, 1, REMOTE, LOCAL), WEIR_ERR_RANGE);
            EXPECT_EQ(check(type, 0, UINT64_MAX - 6, 8, REMOTE, LOCAL), WEIR_ERR_RANGE);
            EXPECT_EQ(check(type, 0, 0, 8, LOCAL, LOCAL), WEIR_ERR_RANGE);
            EXPECT_EQ(check(type, 0, 0, 8, REMOTE, REMOTE), WEIR_ERR_RANGE);
        }
        const uint32_t value = WEIR_REQUEST_VALUE | bits;
        EXPECT_EQ(check(value, SIZE - 8, 0, 8, REMOTE, 0), WEIR_OK);
        EXPECT_EQ(check(value, 7, 0, 1, REMOTE, 0), WEIR_OK);
        EXPECT_EQ(check(value, 7, 0, 2, REMOTE, 0), WEIR_ERR_RANGE);
        EXPECT_EQ(check(value, 0, 0, 0, REMOTE, 0), WEIR_ERR_RANGE);
        EXPECT_EQ(check(value, 0, 0, 9, REMOTE, 0), WEIR_ERR_RANGE);
        EXPECT_EQ(check(value, SIZE, 0, 1, REMOTE, 0), WEIR_ERR_RANGE);
        EXPECT_EQ(check(value, 0, 0, 8, LOCAL, 0), WEIR_ERR_RANGE);
        const uint32_t add = WEIR_REQUEST_ADD | bits;
        EXPECT_EQ(check(add, SIZE - 8, 0, 0, REMOTE, 0), WEIR_OK);
        EXPECT_EQ(check(add, 4, 0, 8, REMOTE, 0), WEIR_ERR_RANGE);
        EXPECT_EQ(check(add, SIZE, 0, 8, REMOTE, 0), WEIR_ERR_RANGE);
        EXPECT_EQ(check(add, 0, 0, 8, LOCAL | WEIR_PORT_MEMORY_ADDS, 0), WEIR_ERR_RANGE);
        EXPECT_EQ(check(add, 0, 0, 8, WEIR_PORT_MEMORY_REMOTE, 0), WEIR_ERR_UNSUPPORTED);
        if (bits != 0) {
            EXPECT_EQ(check(bits, UINT64_MAX, UINT64_MAX, UINT64_MAX, 0, 0), WEIR_OK);
        }
    }
}

} // namespace
