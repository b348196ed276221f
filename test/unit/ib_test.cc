// The transport ib without a NIC: choice of NIC, port and GID from trees like sysfs and from recorded topologies, keys
// and addresses, and error texts.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

extern "C" {
#include "src/transport/ib/device.h"
#include "src/transport/ib/wire.h"
}
#include "weir/error.h"

namespace {

namespace fs = std::filesystem;

bool says(const char *part) { return strstr(weir_last_error(), part) != nullptr; }

// A folder with the files of /sys that the choice reads.
class IbTree : public ::testing::Test {
protected:
    void SetUp() override
    {
        std::string name = (fs::temp_directory_path() / "weir-ib-XXXXXX").string();
        ASSERT_NE(mkdtemp(name.data()), nullptr);
        root = name;
    }

    void TearDown() override { fs::remove_all(root); }

    void write(const fs::path &file, const std::string &text)
    {
        fs::create_directories(file.parent_path());
        std::ofstream(file) << text << "\n";
    }

    fs::path add_nic(const std::string &name, const std::string &state = "4: ACTIVE",
                     const std::string &layer = "InfiniBand", const std::string &rate = "400 Gb/sec (4X NDR)")
    {
        const fs::path folder = root / "class/infiniband" / name;
        add_port(folder / "ports/1", state, layer, rate);
        return folder;
    }

    void add_port(const fs::path &folder, const std::string &state, const std::string &layer, const std::string &rate)
    {
        write(folder / "state", state);
        write(folder / "link_layer", layer);
        write(folder / "rate", rate);
    }

    void add_gid(const std::string &name, uint32_t index, const std::string &gid, const std::string &type)
    {
        const fs::path folder = root / "class/infiniband" / name / "ports/1";
        write(folder / "gids" / std::to_string(index), gid);
        if (!type.empty()) {
            write(folder / "gid_attrs/types" / std::to_string(index), type);
        }
    }

    // The first `most` ports, separated by blanks, or the error's name.
    std::string choose(const char *pci, uint32_t spread = 0, const char *wanted = nullptr, uint32_t most = 1)
    {
        weiri_ib_port ports[8];
        const std::string sysfs = root;
        weiri_ib_search search = {};
        search.sysfs = sysfs.c_str();
        search.topology = topology;
        search.wanted = wanted;
        search.pci = pci;
        search.spread = spread;
        std::string all;
        const weir_status status = weiri_ib_choose(&search, ports, &most);
        for (uint32_t i = 0; status == WEIR_OK && i < most; i++) {
            all += (i == 0 ? "" : " ") + std::string(ports[i].device) + ":" + std::to_string(ports[i].port);
        }
        return status != WEIR_OK ? weir_status_name(status) : all;
    }

    weiri_ib_topology *topology = nullptr;
    fs::path root;
};

// A machine recorded as hwloc's XML: test/ib/NAME.xml.
class IbMachine : public IbTree {
protected:
    void SetUp() override
    {
        IbTree::SetUp();
        if (weiri_ib_topology_missing() != nullptr) {
            GTEST_SKIP() << weiri_ib_topology_missing();
        }
        // A skip ends only the function it stands in. So SetUp looks, for a program that runs without the sources.
        if (!fs::exists(WEIRT_TOPOLOGIES)) {
            GTEST_SKIP() << WEIRT_TOPOLOGIES << " is not here";
        }
    }

    void TearDown() override
    {
        weiri_ib_topology_close(topology);
        IbTree::TearDown();
    }

    void read(const char *name)
    {
        const fs::path file = fs::path(WEIRT_TOPOLOGIES) / (std::string(name) + ".xml");
        ASSERT_EQ(weiri_ib_topology_read(file.c_str(), &topology), WEIR_OK) << weir_last_error();
    }

    // Four root ports on each socket, below each a switch with a GPU and a NIC; mlx5_8, for storage, on the first.
    void read_server()
    {
        read("two-sockets-8-gpus-8-nics");
        for (int i = 0; i < 8; i++) {
            add_nic("mlx5_" + std::to_string(i));
        }
        add_nic("mlx5_8", "4: ACTIVE", "Ethernet", "25 Gb/sec (1X EDR)");
    }
};

TEST_F(IbMachine, NearestNicOfEachGpu)
{
    const char *const gpus[] = { "0000:19:00.0", "0000:3e:00.0", "0000:5c:00.0", "0000:74:00.0",
                                 "0000:9b:00.0", "0000:ab:00.0", "0000:ca:00.0", "0000:dc:00.0" };
    ASSERT_NO_FATAL_FAILURE(read_server());
    for (uint32_t i = 0; i < 8; i++) {
        EXPECT_EQ(choose(gpus[i], i), "mlx5_" + std::to_string(i) + ":1");
        EXPECT_EQ(choose(gpus[i], 7 - i), "mlx5_" + std::to_string(i) + ":1");
    }
}

TEST_F(IbMachine, NextNearestWhenTheNearestIsDown)
{
    ASSERT_NO_FATAL_FAILURE(read_server());
    write(root / "class/infiniband/mlx5_5/ports/1/state", "1: DOWN");
    // On the same node, below other root complexes, three are equally near.
    EXPECT_EQ(choose("0000:ab:00.0", 0), "mlx5_4:1");
    EXPECT_EQ(choose("0000:ab:00.0", 1), "mlx5_6:1");
    EXPECT_EQ(choose("0000:ab:00.0", 5), "mlx5_7:1");
    for (const char *other : { "mlx5_4", "mlx5_6", "mlx5_7" }) {
        write(root / "class/infiniband" / other / "ports/1/state", "2: INIT");
    }
    // All others are on the other socket: InfiniBand comes before the slower Ethernet.
    EXPECT_EQ(choose("0000:ab:00.0", 0), "mlx5_0:1");
    EXPECT_EQ(choose("0000:ab:00.0", 3), "mlx5_3:1");
    EXPECT_EQ(choose("0000:ab:00.0", 4), "mlx5_0:1");
}

TEST_F(IbMachine, SeveralNicsBeginWithTheNearest)
{
    ASSERT_NO_FATAL_FAILURE(read_server());
    EXPECT_EQ(choose("0000:ca:00.0", 0, nullptr, 2), "mlx5_6:1 mlx5_4:1");
    EXPECT_EQ(choose("0000:19:00.0", 3, nullptr, 4), "mlx5_0:1 mlx5_1:1 mlx5_2:1 mlx5_3:1");
    EXPECT_EQ(choose("0000:19:00.0", 0, "mlx5_7,mlx5_3", 4), "mlx5_3:1 mlx5_7:1");
    // Only of one kind.
    EXPECT_EQ(choose("0000:19:00.0", 0, "mlx5_8,mlx5_3", 4), "mlx5_3:1");
}

TEST_F(IbMachine, FarNics)
{
    ASSERT_NO_FATAL_FAILURE(read("four-nodes-far-nics"));
    for (const char *name : { "mlx5_0", "mlx5_1", "mlx5_2" }) {
        add_nic(name);
    }
    // Node 0 has no NIC: the NIC of the package's other node is nearer than those of the other package.
    EXPECT_EQ(choose("0000:11:00.0"), "mlx5_0:1");
    EXPECT_EQ(weiri_ib_topology_distance(topology, "0000:11:00.0", "mlx5_0"), WEIRI_IB_SAME_PACKAGE);
    EXPECT_EQ(weiri_ib_topology_distance(topology, "0000:11:00.0", "mlx5_1"), WEIRI_IB_ELSEWHERE);
    EXPECT_EQ(choose("0000:51:00.0", 1), "mlx5_0:1");
    EXPECT_EQ(weiri_ib_topology_distance(topology, "0000:51:00.0", "mlx5_0"), WEIRI_IB_SAME_NODE);
    // Two are equally near for both GPUs of the other package.
    EXPECT_EQ(choose("0000:91:00.0", 0), "mlx5_1:1");
    EXPECT_EQ(choose("0000:91:00.0", 1), "mlx5_2:1");
    EXPECT_EQ(choose("0000:d1:00.0", 3), "mlx5_2:1");
}

TEST_F(IbMachine, WhatIsNotThereIsElsewhere)
{
    ASSERT_NO_FATAL_FAILURE(read_server());
    EXPECT_LT(weiri_ib_topology_distance(topology, "0000:19:00.0", "mlx5_0"), WEIRI_IB_FAR_BRIDGES);
    EXPECT_EQ(weiri_ib_topology_distance(topology, "0001:19:00.0", "mlx5_0"), WEIRI_IB_ELSEWHERE);
    EXPECT_EQ(weiri_ib_topology_distance(topology, "nonsense", "mlx5_0"), WEIRI_IB_ELSEWHERE);
    EXPECT_EQ(weiri_ib_topology_distance(topology, "0000:19:00.0", "rxe0"), WEIRI_IB_ELSEWHERE);
    EXPECT_EQ(weiri_ib_topology_distance(nullptr, "0000:19:00.0", "mlx5_0"), WEIRI_IB_ELSEWHERE);
    // As in a container: all are equally near.
    EXPECT_EQ(choose("0000:99:00.0", 2), "mlx5_2:1");
}

TEST_F(IbMachine, FilesThatAreNone)
{
    weiri_ib_topology *none = nullptr;
    EXPECT_EQ(weiri_ib_topology_read((root / "nowhere.xml").c_str(), &none), WEIR_ERR_SYSTEM);
    EXPECT_TRUE(says("nowhere.xml")) << weir_last_error();
    EXPECT_EQ(none, nullptr);
}

TEST_F(IbMachine, ThisMachineIsReadOnce)
{
    const weiri_ib_topology *here = weiri_ib_topology_here();
    ASSERT_NE(here, nullptr) << weiri_ib_topology_missing();
    EXPECT_EQ(weiri_ib_topology_here(), here);
}

// Without a place or a topology, all are equally near.
TEST_F(IbTree, WithoutAPlaceDevicesAreSpread)
{
    for (const char *name : { "mlx5_0", "mlx5_1", "mlx5_2", "mlx5_10" }) {
        add_nic(name);
    }
    for (const char *pci : { "", "0000:19:00.0" }) {
        EXPECT_EQ(choose(pci, 0), "mlx5_0:1");
        EXPECT_EQ(choose(pci, 3), "mlx5_10:1");
        EXPECT_EQ(choose(pci, 5), "mlx5_1:1");
        EXPECT_EQ(choose(pci, 3, nullptr, 3), "mlx5_10:1 mlx5_0:1 mlx5_1:1");
    }
}

TEST_F(IbTree, FasterPortsComeFirst)
{
    add_nic("mlx5_0", "4: ACTIVE", "Ethernet", "100 Gb/sec (4X EDR)");
    add_nic("mlx5_1", "4: ACTIVE", "Ethernet", "200 Gb/sec (4X HDR)");
    EXPECT_EQ(choose("", 0), "mlx5_1:1");
    EXPECT_EQ(choose("", 1), "mlx5_1:1");
}

TEST_F(IbTree, TheEnvironmentChooses)
{
    for (const char *name : { "mlx5_0", "mlx5_1", "mlx5_3" }) {
        add_nic(name);
    }
    add_nic("mlx5_10", "4: ACTIVE", "Ethernet", "25 Gb/sec (1X EDR)");
    add_port(root / "class/infiniband/mlx5_1/ports/2", "4: ACTIVE", "InfiniBand", "400 Gb/sec (4X NDR)");
    EXPECT_EQ(choose("", 0, "mlx5_10"), "mlx5_10:1");
    EXPECT_EQ(choose("", 0, "mlx5_1:2"), "mlx5_1:2");
    EXPECT_EQ(choose("", 1, "mlx5_0,mlx5_1:2"), "mlx5_1:2");
    EXPECT_EQ(choose("", 0, "mlx5_1", 4), "mlx5_1:1 mlx5_1:2");
    // Several are of one kind.
    EXPECT_EQ(choose("", 0, "mlx5_10,mlx5_3", 4), "mlx5_3:1");
    EXPECT_EQ(choose("", 0, "mlx4_0"), "WEIR_ERR_UNSUPPORTED");
    EXPECT_TRUE(says("WEIR_IB_DEVICE=mlx4_0")) << weir_last_error();
    for (const char *wrong : { ",", "mlx5_0,,mlx5_1", ":1", "mlx5_0:", "mlx5_0:x", "mlx5_0:0", "mlx5_0:256",
                               "mlx5_0:1000000001", "../mlx5_0" }) {
        EXPECT_EQ(choose("", 0, wrong), "WEIR_ERR_ENV") << wrong;
        EXPECT_TRUE(says("WEIR_IB_DEVICE=")) << weir_last_error();
    }
}

TEST_F(IbTree, WhyThereIsNone)
{
    EXPECT_EQ(choose(""), "WEIR_ERR_UNSUPPORTED");
    EXPECT_TRUE(says("no RDMA device")) << weir_last_error();
    add_nic("mlx5_0", "1: DOWN");
    EXPECT_EQ(choose(""), "WEIR_ERR_UNSUPPORTED");
    EXPECT_TRUE(says("mlx5_0 port 1 is DOWN")) << weir_last_error();
    fs::remove_all(root / "class/infiniband/mlx5_0/ports");
    EXPECT_EQ(choose(""), "WEIR_ERR_UNSUPPORTED");
    EXPECT_TRUE(says("none of the 1 RDMA devices")) << weir_last_error();
}

class IbGid : public IbTree {
protected:
    void add(bool ethernet)
    {
        weiri_ib_search search = {};
        search.sysfs = root.c_str();
        search.pci = "";
        uint32_t count = 1;
        add_nic("mlx5_0", "4: ACTIVE", ethernet ? "Ethernet" : "InfiniBand");
        ASSERT_EQ(weiri_ib_choose(&search, &port, &count), WEIR_OK) << weir_last_error();
        ASSERT_EQ(port.ethernet, ethernet);
    }

    int find()
    {
        weiri_ib_gid gid;
        return weiri_ib_find_gid(root.c_str(), &port, nullptr, &gid) == WEIR_OK ? (int)gid.index : -1;
    }

    weiri_ib_port port;
};

TEST_F(IbGid, FarthestReachOfRoceV2)
{
    add(true);
    EXPECT_EQ(find(), -1);
    EXPECT_TRUE(says("mlx5_0 port 1 has no GID")) << weir_last_error();
    add_gid("mlx5_0", 9, "0000:0000:0000:0000:0000:ffff:0a01:0203", "IB/RoCE v1");
    EXPECT_EQ(find(), 9);
    add_gid("mlx5_0", 1, "fe80:0000:0000:0000:0a00:27ff:fe00:0001", "RoCE v2");
    EXPECT_EQ(find(), 1);
    add_gid("mlx5_0", 200, "2001:0db8:0000:0000:0000:0000:0000:0001", "RoCE v2");
    EXPECT_EQ(find(), 200);
    add_gid("mlx5_0", 3, "0000:0000:0000:0000:0000:ffff:0a01:0203", "RoCE v2");
    add_gid("mlx5_0", 5, "0000:0000:0000:0000:0000:ffff:0a01:0204", "RoCE v2");
    EXPECT_EQ(find(), 3);
}

TEST_F(IbGid, BytesOfTheChosen)
{
    const uint8_t expected[16] = { 0x20, 0x01, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0xab, 0xcd, 0, 0x1f };
    const uint32_t index = 2, missing = 4, empty = 0;
    weiri_ib_gid gid;
    add(true);
    add_gid("mlx5_0", 0, "0000:0000:0000:0000:0000:0000:0000:0000", "");
    add_gid("mlx5_0", 1, "0000:0000:0000:0000:0000:ffff:0a01:0203", "RoCE v2");
    add_gid("mlx5_0", 2, "2001:0db8:0000:0000:0000:0000:abcd:001f", "IB/RoCE v1");
    ASSERT_EQ(weiri_ib_find_gid(root.c_str(), &port, &index, &gid), WEIR_OK) << weir_last_error();
    EXPECT_EQ(memcmp(gid.bytes, expected, sizeof expected), 0);
    EXPECT_EQ(gid.index, 2u);
    EXPECT_FALSE(gid.roce_v2);
    EXPECT_EQ(weiri_ib_find_gid(root.c_str(), &port, &missing, &gid), WEIR_ERR_UNSUPPORTED);
    EXPECT_TRUE(says("index 4")) << weir_last_error();
    EXPECT_EQ(weiri_ib_find_gid(root.c_str(), &port, &empty, &gid), WEIR_ERR_UNSUPPORTED);
}

TEST_F(IbGid, FirstOfInfiniBand)
{
    add(false);
    add_gid("mlx5_0", 0, "fe80:0000:0000:0000:506b:4b03:00c1:d2e4", "IB/RoCE v1");
    add_gid("mlx5_0", 1, "2001:0000:0000:0000:506b:4b03:00c1:d2e4", "IB/RoCE v1");
    EXPECT_EQ(find(), 0);
}

TEST_F(IbGid, MalformedOnesAreNotTaken)
{
    add(true);
    const char *wrong[] = { "",
                            "fe80::1",
                            "fe80:0000:0000:0000:0000:0000:0000",
                            "fe80:0000:0000:0000:0000:0000:0000:000g",
                            "fe80:0000:0000:0000:0000:0000:0000:0001:0002",
                            "fe80-0000:0000:0000:0000:0000:0000:0001" };
    for (uint32_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        add_gid("mlx5_0", i, wrong[i], "RoCE v2");
    }
    EXPECT_EQ(find(), -1);
}

TEST(IbWire, KeyComesBack)
{
    const weiri_ib_key written = { 0x1122334455667788u, { 0x99aabbccu, 3, 0xffffffffu }, 3, true, false };
    weiri_ib_key read = {};
    weiri_key key = {};
    weiri_ib_key_write(&written, 4096, &key);
    EXPECT_EQ(key.size, 4096u);
    ASSERT_EQ(weiri_ib_key_read(&key, &read), WEIR_OK);
    EXPECT_EQ(read.address, written.address);
    EXPECT_EQ(memcmp(read.rkeys, written.rkeys, sizeof read.rkeys), 0);
    EXPECT_EQ(read.nics, 3);
    EXPECT_TRUE(read.flush);
    EXPECT_FALSE(read.atomic);
}

// Flips of bits, other lengths, sizes past the end of memory.
TEST(IbWire, GarbledKeys)
{
    const weiri_ib_key written = { UINT64_MAX - 8192, { 7 }, 1, false, true };
    weiri_ib_key read;
    weiri_key key = {};
    weiri_ib_key_write(&written, 4096, &key);
    ASSERT_EQ(weiri_ib_key_read(&key, &read), WEIR_OK);
    for (uint32_t length = 0; length <= sizeof key.bytes + 1; length++) {
        weiri_key other = key;
        other.length = length;
        EXPECT_EQ(weiri_ib_key_read(&other, &read), length == key.length ? WEIR_OK : WEIR_ERR_CORRUPT) << length;
    }
    for (uint32_t bit = 0; bit < 24; bit++) { // the version, the flags of which two are used, the number of rkeys
        weiri_key other = key;
        other.bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
        EXPECT_EQ(weiri_ib_key_read(&other, &read), bit == 8 || bit == 9 ? WEIR_OK : WEIR_ERR_CORRUPT) << bit;
    }
    key.size = 8193;
    EXPECT_EQ(weiri_ib_key_read(&key, &read), WEIR_ERR_CORRUPT);
}

weiri_ib_address some_address()
{
    weiri_ib_address address = {};
    address.ethernet = true;
    address.mtu = 5;
    address.reads = 16;
    address.port = 1;
    address.nic = 3;
    address.lid = 0x1234;
    address.qpn = 0xfedcba;
    address.psn = 0xabcdef;
    for (uint8_t i = 0; i < 16; i++) {
        address.gid[i] = (uint8_t)(0xf0 + i);
    }
    return address;
}

bool same(const weiri_ib_address &a, const weiri_ib_address &b)
{
    return a.ethernet == b.ethernet && a.mtu == b.mtu && a.reads == b.reads && a.port == b.port && a.nic == b.nic &&
           a.lid == b.lid && a.qpn == b.qpn && a.psn == b.psn && memcmp(a.gid, b.gid, sizeof a.gid) == 0;
}

TEST(IbWire, AddressComesBack)
{
    uint8_t bytes[WEIRI_ADDRESS_MAX];
    weiri_ib_queue_address written = {}, read;
    for (uint32_t i = 0; i < WEIRI_IB_PAIRS_MAX; i++) {
        written.pairs[i] = some_address();
        written.pairs[i].qpn = 100 + i;
    }
    for (uint32_t pairs = 1; pairs <= WEIRI_IB_PAIRS_MAX; pairs++) {
        for (bool engine : { false, true }) {
            written.count = pairs;
            written.engine = engine ? some_address() : weiri_ib_address{};
            const uint32_t size = weiri_ib_address_write(&written, bytes);
            ASSERT_EQ(weiri_ib_address_read(bytes, size, &read), WEIR_OK);
            ASSERT_EQ(read.count, pairs);
            EXPECT_TRUE(same(read.pairs[pairs - 1], written.pairs[pairs - 1]));
            EXPECT_TRUE(same(read.engine, written.engine));
            for (uint32_t length = 0; length <= sizeof bytes; length++) {
                EXPECT_EQ(weiri_ib_address_read(bytes, length, &read), length == size ? WEIR_OK : WEIR_ERR_CORRUPT)
                    << length;
            }
            bytes[2] = 2;
            EXPECT_EQ(weiri_ib_address_read(bytes, size, &read), WEIR_ERR_CORRUPT);
            bytes[2] = engine;
            bytes[1] = (uint8_t)(pairs == 1 ? 0 : WEIRI_IB_PAIRS_MAX + 1);
            EXPECT_EQ(weiri_ib_address_read(bytes, size, &read), WEIR_ERR_CORRUPT);
        }
    }
}

TEST(IbWire, AddressesOutOfRange)
{
    struct {
        const char *what;
        void (*spoil)(weiri_ib_address *);
    } const cases[] = {
        { "mtu 0", [](weiri_ib_address *a) { a->mtu = 0; } },
        { "mtu 6", [](weiri_ib_address *a) { a->mtu = 6; } },
        { "no reads", [](weiri_ib_address *a) { a->reads = 0; } },
        { "nic 4", [](weiri_ib_address *a) { a->nic = 4; } },
        { "port 0", [](weiri_ib_address *a) { a->port = 0; } },
        { "qpn 0", [](weiri_ib_address *a) { a->qpn = 0; } },
        { "qpn of 25 bits", [](weiri_ib_address *a) { a->qpn = 0x1000000; } },
        { "psn of 25 bits", [](weiri_ib_address *a) { a->psn = 0x1000000; } },
    };
    for (const auto &c : cases) {
        uint8_t bytes[WEIRI_ADDRESS_MAX];
        weiri_ib_queue_address address = { { some_address(), some_address() }, 2, {} };
        c.spoil(&address.pairs[1]);
        const uint32_t size = weiri_ib_address_write(&address, bytes);
        EXPECT_EQ(weiri_ib_address_read(bytes, size, &address), WEIR_ERR_CORRUPT) << c.what;
        EXPECT_TRUE(says("address")) << weir_last_error();
    }
}

} // namespace
