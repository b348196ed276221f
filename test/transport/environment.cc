// The environment of these tests. tools/check makes libfabric's buffers small; here they have their default size,
// except under the sanitizers, where clearing large ones takes half a second a queue.
#include <cstdlib>

#include "test/harness/ranks.h"

namespace {

[[maybe_unused]] const int usual_buffers = weirt_sanitizer()[0] == '\0' ? unsetenv("FI_OFI_RXM_BUFFER_SIZE") : 0;

} // namespace
