/* device.c - the search in sysfs: reads every port of every RDMA device, and sorts the usable ones. */
#include "src/transport/ib/device.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "src/host/base/error.h"

#define PORTS_MAX 64
#define GIDS_MAX 256

typedef struct search {
    const weiri_ib_search *how;
    weiri_ib_port ports[PORTS_MAX];
    uint32_t count;
    uint32_t devices;
    char inactive[160]; /* the first inactive port and its state */
} search;

static bool read_text(char *text, size_t capacity, const char *path)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return false;
    }
    ssize_t got = read(fd, text, capacity - 1);
    (void)close(fd);
    if (got <= 0) {
        return false;
    }
    text[got] = '\0';
    text[strcspn(text, "\n")] = '\0';
    return true;
}

static bool read_of_port(char *text, size_t capacity, const char *sysfs, const weiri_ib_port *port, const char *file)
{
    char path[PATH_MAX];
    int length =
        snprintf(path, sizeof path, "%s/class/infiniband/%s/ports/%u/%s", sysfs, port->device, port->port, file);
    return length > 0 && (size_t)length < sizeof path && read_text(text, capacity, path);
}

/* ---- ports ---------------------------------------------------------------------------------------------- */

/* Reads one entry of the list, "name" or "name:port"; port 0 means any. False if it is malformed. */
static bool parse_entry(const char *text, size_t length, char name[WEIRI_IB_NAME], uint32_t *port)
{
    size_t end = 0;
    while (end < length && text[end] != ':') {
        end++;
    }
    if (end == 0 || end >= WEIRI_IB_NAME || memchr(text, '/', end) != NULL) {
        return false;
    }
    memcpy(name, text, end);
    name[end] = '\0';
    *port = 0;
    if (end == length) {
        return true;
    }
    for (size_t i = end + 1; i < length; i++) {
        if (text[i] < '0' || text[i] > '9' || i > end + 3) {
            return false;
        }
        *port = *port * 10 + (uint32_t)(text[i] - '0');
    }
    return *port >= 1 && *port <= 255;
}

static weir_status check_list(const char *wanted)
{
    char name[WEIRI_IB_NAME];
    uint32_t port;
    for (const char *at = wanted; *at != '\0';) {
        size_t length = strcspn(at, ",");
        if (!parse_entry(at, length, name, &port)) {
            return weiri_fail(WEIR_ERR_ENV,
                              "WEIR_IB_DEVICE=%.80s: must be names of RDMA devices, as in mlx5_0 or "
                              "mlx5_0:1,mlx5_1:1",
                              wanted);
        }
        at += length + (at[length] == ',');
    }
    return WEIR_OK;
}

static bool is_wanted(const search *s, const weiri_ib_port *found)
{
    char name[WEIRI_IB_NAME];
    uint32_t port;
    for (const char *at = s->how->wanted; *at != '\0';) {
        size_t length = strcspn(at, ",");
        if (parse_entry(at, length, name, &port) && strcmp(name, found->device) == 0 &&
            (port == 0 || port == found->port)) {
            return true;
        }
        at += length + (at[length] == ',');
    }
    return s->how->wanted[0] == '\0';
}

static void add_port(search *s, const char *device, uint32_t number, uint32_t distance)
{
    char state[32], layer[32], rate[32];
    weiri_ib_port port = { .port = number, .distance = distance };
    snprintf(port.device, sizeof port.device, "%s", device);
    if (!is_wanted(s, &port) || !read_of_port(state, sizeof state, s->how->sysfs, &port, "state")) {
        return;
    }
    if (strncmp(state, "4:", 2) != 0) {
        if (s->inactive[0] == '\0') {
            const char *words = strchr(state, ' ');
            snprintf(s->inactive, sizeof s->inactive, "%s port %u is %s", device, number,
                     words != NULL ? words + 1 : state);
        }
        return;
    }
    port.ethernet =
        read_of_port(layer, sizeof layer, s->how->sysfs, &port, "link_layer") && strcmp(layer, "Ethernet") == 0;
    if (read_of_port(rate, sizeof rate, s->how->sysfs, &port, "rate")) {
        port.rate = (uint32_t)strtoul(rate, NULL, 10);
    }
    if (s->count < PORTS_MAX) {
        s->ports[s->count++] = port;
    }
}

static void add_device(search *s, const char *device)
{
    char path[PATH_MAX];
    const weiri_ib_search *how = s->how;
    uint32_t distance = how->pci[0] != '\0' ? weiri_ib_topology_distance(how->topology, how->pci, device) : 0;
    int length = snprintf(path, sizeof path, "%s/class/infiniband/%s/ports", how->sysfs, device);
    DIR *folder = length > 0 && (size_t)length < sizeof path ? opendir(path) : NULL;
    s->devices++;
    if (folder == NULL) {
        return;
    }
    for (struct dirent *entry = readdir(folder); entry != NULL; entry = readdir(folder)) {
        unsigned long number = strtoul(entry->d_name, NULL, 10);
        if (number >= 1 && number <= 255) {
            add_port(s, device, (uint32_t)number, distance);
        }
    }
    (void)closedir(folder);
}

static int compare_quality(const weiri_ib_port *a, const weiri_ib_port *b)
{
    if (a->distance != b->distance) {
        return a->distance < b->distance ? -1 : 1;
    }
    if (a->ethernet != b->ethernet) {
        return a->ethernet ? 1 : -1;
    }
    return a->rate == b->rate ? 0 : a->rate > b->rate ? -1 : 1;
}

/* Names are compared by their numbers: mlx5_2 before mlx5_10. */
static int compare_ports(const void *left, const void *right)
{
    const weiri_ib_port *a = (const weiri_ib_port *)left, *b = (const weiri_ib_port *)right;
    int order = compare_quality(a, b);
    if (order != 0) {
        return order;
    }
    size_t a_length = strlen(a->device), b_length = strlen(b->device);
    if (a_length != b_length) {
        return a_length < b_length ? -1 : 1;
    }
    order = strcmp(a->device, b->device);
    return order != 0 ? order : a->port < b->port ? -1 : a->port > b->port;
}

static weir_status run_search(search *s)
{
    char path[PATH_MAX];
    const char *wanted = s->how->wanted;
    int length = snprintf(path, sizeof path, "%s/class/infiniband", s->how->sysfs);
    DIR *folder = length > 0 && (size_t)length < sizeof path ? opendir(path) : NULL;
    if (folder != NULL) {
        for (struct dirent *entry = readdir(folder); entry != NULL; entry = readdir(folder)) {
            if (entry->d_name[0] != '.' && strlen(entry->d_name) < WEIRI_IB_NAME) {
                add_device(s, entry->d_name);
            }
        }
        (void)closedir(folder);
    }
    for (uint32_t i = 0; i < s->how->unlisted_count; i++) {
        s->devices++;
        if (is_wanted(s, &s->how->unlisted[i]) && s->count < PORTS_MAX) {
            s->ports[s->count++] = s->how->unlisted[i];
        }
    }
    if (s->count != 0) {
        return WEIR_OK;
    }
    if (s->devices == 0) {
        return weiri_fail(WEIR_ERR_UNSUPPORTED, "this host has no RDMA device");
    }
    if (s->inactive[0] != '\0') {
        return weiri_fail(WEIR_ERR_UNSUPPORTED, "no RDMA device%s%s is usable: %s", wanted[0] != '\0' ? " of " : "",
                          wanted, s->inactive);
    }
    return weiri_fail(WEIR_ERR_UNSUPPORTED, "none of the %u RDMA devices here has a port%s%s", s->devices,
                      wanted[0] != '\0' ? " and is in WEIR_IB_DEVICE=" : "", wanted);
}

weir_status weiri_ib_choose(const weiri_ib_search *how, weiri_ib_port *out, uint32_t *count)
{
    weiri_ib_search search_for = *how;
    search_for.wanted = how->wanted != NULL ? how->wanted : "";
    search s = { .how = &search_for };
    weir_status status = check_list(search_for.wanted);
    if (status == WEIR_OK) {
        status = run_search(&s);
    }
    if (status != WEIR_OK) {
        return status;
    }
    qsort(s.ports, s.count, sizeof s.ports[0], compare_ports);
    uint32_t equals = 1, taken = 0;
    while (equals < s.count && compare_quality(&s.ports[0], &s.ports[equals]) == 0) {
        equals++;
    }
    for (uint32_t i = 0; i < s.count && taken < *count; i++) {
        const weiri_ib_port *port = &s.ports[i < equals ? (how->spread + i) % equals : i];
        if (port->ethernet == s.ports[0].ethernet) {
            out[taken++] = *port;
        }
    }
    *count = taken;
    return WEIR_OK;
}

const char *weiri_ib_distance_text(uint32_t distance)
{
    return distance == 0                       ? "all NICs are equally near"
           : distance <= WEIRI_IB_FAR_BRIDGES  ? "below the same root complex"
           : distance <= WEIRI_IB_SAME_NODE    ? "on the same NUMA node"
           : distance <= WEIRI_IB_SAME_PACKAGE ? "on the same package"
                                               : "far, or at an unknown distance";
}

/* ---- GIDs ----------------------------------------------------------------------------------------------- */

bool weiri_ib_gid_is_ipv4(const uint8_t gid[16])
{
    static const uint8_t mapped[12] = { 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff };
    return memcmp(gid, mapped, sizeof mapped) == 0;
}

static bool gid_is_link_local(const uint8_t gid[16]) { return gid[0] == 0xfe && (gid[1] & 0xc0) == 0x80; }

/* Reads eight groups of four hexadecimal digits. False for any other text and for the empty GID. */
static bool parse_gid(const char *text, uint8_t gid[16])
{
    bool any = false;
    for (uint32_t i = 0; i < 8; i++) {
        unsigned value = 0;
        for (uint32_t k = 0; k < 4; k++, text++) {
            static const char digits[] = "0123456789abcdef";
            const char *digit = *text != '\0' ? strchr(digits, *text) : NULL;
            if (digit == NULL) {
                return false;
            }
            value = value << 4 | (unsigned)(digit - digits);
        }
        gid[2 * i] = (uint8_t)(value >> 8);
        gid[2 * i + 1] = (uint8_t)value;
        any = any || value != 0;
        if (*text++ != (i < 7 ? ':' : '\0')) {
            return false;
        }
    }
    return any;
}

static bool read_gid(const char *sysfs, const weiri_ib_port *port, uint32_t index, weiri_ib_gid *out)
{
    char file[32], text[64], type[32];
    snprintf(file, sizeof file, "gids/%u", index);
    if (!read_of_port(text, sizeof text, sysfs, port, file) || !parse_gid(text, out->bytes)) {
        return false;
    }
    snprintf(file, sizeof file, "gid_attrs/types/%u", index);
    out->roce_v2 = read_of_port(type, sizeof type, sysfs, port, file) && strcmp(type, "RoCE v2") == 0;
    out->index = index;
    return true;
}

static uint32_t reach_of(const weiri_ib_gid *gid)
{
    uint32_t reach = weiri_ib_gid_is_ipv4(gid->bytes) ? 3 : gid_is_link_local(gid->bytes) ? 1 : 2;
    return gid->roce_v2 ? reach + 3 : reach;
}

weir_status weiri_ib_find_gid(const char *sysfs, const weiri_ib_port *port, const uint32_t *index, weiri_ib_gid *out)
{
    weiri_ib_gid gid, best = { .index = GIDS_MAX };
    if (index != NULL) {
        if (!read_gid(sysfs, port, *index, out)) {
            return weiri_fail(WEIR_ERR_UNSUPPORTED, "%s port %u has no GID with index %u (WEIR_IB_GID_INDEX)",
                              port->device, port->port, *index);
        }
        return WEIR_OK;
    }
    for (uint32_t i = 0; i < GIDS_MAX; i++) {
        if (read_gid(sysfs, port, i, &gid) && (best.index == GIDS_MAX || reach_of(&gid) > reach_of(&best))) {
            best = gid;
        }
        if (!port->ethernet && best.index != GIDS_MAX) {
            break;
        }
    }
    if (best.index == GIDS_MAX) {
        return weiri_fail(WEIR_ERR_UNSUPPORTED, "%s port %u has no GID; give its network interface an address",
                          port->device, port->port);
    }
    *out = best;
    return WEIR_OK;
}
