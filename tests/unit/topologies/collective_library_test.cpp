// The key collective_library: the library whose algorithms run the collectives of CPU clusters.
#include <gtest/gtest.h>

#include <string>

#include "core/error.h"
#include "tests/unit/topologies/made_up_cluster.h"
#include "topologies/cluster_spec.h"

namespace orrery::topologies {
namespace {

TEST(CollectiveLibrary, RoundTripsAndDefaultsToOpenMpi) {
    ClusterSpec spec = orrery::test::made_up_local_cluster();
    EXPECT_EQ(to_json_text(spec).find("collective_library"), std::string::npos);
    for (const CollectiveLibrary library :
         {CollectiveLibrary::openmpi, CollectiveLibrary::gloo, CollectiveLibrary::orrery}) {
        spec.collective_library = library;
        EXPECT_EQ(cluster_from_json_text(to_json_text(spec), "f").collective_library, library);
    }
}

TEST(CollectiveLibrary, UnknownNamesAndGpuClustersAreRefused) {
    ClusterSpec spec = orrery::test::made_up_local_cluster();
    spec.collective_library = CollectiveLibrary::gloo;
    std::string text = to_json_text(spec);
    text.replace(text.find("\"gloo\""), 6, "\"mpich\"");
    try {
        (void)cluster_from_json_text(text, "f");
        FAIL() << "mpich was accepted";
    } catch (const InputError& error) {
        EXPECT_NE(std::string(error.what()).find("collective_library"), std::string::npos) << error.what();
        EXPECT_NE(std::string(error.what()).find("openmpi"), std::string::npos) << error.what();
    }
    ClusterSpec gpus = load_cluster("dgx-h100", 8);
    gpus.collective_library = CollectiveLibrary::gloo;
    EXPECT_THROW((void)cluster_from_json_text(to_json_text(gpus), "f"), InputError);
}

}  // namespace
}  // namespace orrery::topologies
