#include "sim/capacity/catalogue.h"

#include <gtest/gtest.h>

#include "core/error.h"
#include "topologies/catalogue.h"

namespace orrery::sim {
namespace {

using topologies::load_device;

TEST(Catalogue, HasPricesWithDateAndSource) {
    const Catalogue& catalogue = built_in_catalogue();
    EXPECT_EQ(catalogue.usd_per_device_hour.at("h100-sxm-80gb").value, 2.95);
    for (const auto& [device, price] : catalogue.usd_per_device_hour) {
        EXPECT_GT(price.value, 0) << device;
        EXPECT_EQ(price.as_of.size(), 7U) << device;  // 2026-09
        EXPECT_FALSE(price.source.empty()) << device;
    }
    EXPECT_EQ(catalogue.faults.device_hours_per_interruption->value, 50700);
}

TEST(Catalogue, PowerIsThatOfTheProfile) {
    const program::CostFigures figures = cost_figures(built_in_catalogue(), load_device("h100-sxm-80gb"));
    EXPECT_EQ(figures.watts->value, 700);
    EXPECT_EQ(figures.usd_per_device_hour->value, 2.95);
    EXPECT_FALSE(figures.pue.has_value());
    // A variant costs as much, with the power of its name.
    const program::CostFigures variant = cost_figures(built_in_catalogue(), load_device("h100-sxm-96gb-500w"));
    EXPECT_EQ(variant.watts->value, 500);
    EXPECT_EQ(variant.usd_per_device_hour->value, 2.95);
    EXPECT_FALSE(cost_figures(built_in_catalogue(), load_device("t4")).usd_per_device_hour.has_value());
}

TEST(Catalogue, FiguresOfAFileReplaceTheBuiltInOnes) {
    const Catalogue mine = catalogue_from_json_text(
        R"({"schema": "orrery.catalogue/1", "devices": {"h100-sxm-80gb":
            {"usd_per_device_hour": {"value": 1.5, "as_of": "2026-11", "source": "our contract"}}},
            "faults": {"restart_s": {"value": 60, "source": "our drills"}}})",
        "mine.json");
    const Catalogue both = merged(built_in_catalogue(), mine);
    EXPECT_EQ(both.usd_per_device_hour.at("h100-sxm-80gb").value, 1.5);
    EXPECT_EQ(both.usd_per_device_hour.at("b200-sxm").value, 5.5);
    EXPECT_EQ(both.faults.restart_s->value, 60);
    EXPECT_EQ(both.faults.device_hours_per_interruption->value, 50700);
}

TEST(Catalogue, RefusesUnknownDevicesAndPricesOfNothing) {
    const auto message_of = [](const std::string& devices) -> std::string {
        try {
            (void)catalogue_from_json_text(R"({"schema": "orrery.catalogue/1", "devices": )" + devices + "}",
                                           "mine.json");
        } catch (const InputError& error) {
            return error.what();
        }
        return "";
    };
    EXPECT_NE(message_of(R"({"h1000": {"usd_per_device_hour": {"value": 1, "source": "x"}}})").find("h1000"),
              std::string::npos);
    EXPECT_NE(message_of(R"({"t4": {"usd_per_device_hour": {"value": 0, "source": "x"}}})").find("value"),
              std::string::npos);
    EXPECT_NE(message_of(R"({"t4": {"usd": 1}})").find("usd"), std::string::npos);
}

constexpr const char* kColumns =
    "InstanceType,AcceleratorName,AcceleratorCount,vCPUs,MemoryGiB,Price,Region,GpuInfo,SpotPrice\n";

TEST(Catalogue, ReadsPriceListsOfSkyPilot) {
    const std::string csv = std::string(kColumns) +
                            "a,H100,8.0,192,2048,32.0,east,\"{'x': 1, 'y': 2}\",16.0\n"
                            "b,H100,1.0,24,256,3.5,west,,\n"
                            "c,Gaudi HL-205,8.0,96,768,13.1,east,,5.0\n"
                            "d,,,4,16,0.2,east,,0.1\n"
                            "e,A100-80GB,8.0,96,1152,20.0,west,,8.0\n";
    const Catalogue listed = catalogue_from_price_csv(csv, "prices.csv", "2026-11", false);
    EXPECT_EQ(listed.usd_per_device_hour.size(), 2U);
    const program::DatedFigure& price = listed.usd_per_device_hour.at("h100-sxm-80gb");
    EXPECT_EQ(price.value, 3.5);  // the lowest
    EXPECT_EQ(price.as_of, "2026-11");
    EXPECT_EQ(price.source, "prices.csv, row 2: H100 in west");
    EXPECT_EQ(listed.usd_per_device_hour.at("a100-sxm-80gb").value, 2.5);
    const Catalogue spot = catalogue_from_price_csv(csv, "prices.csv", "2026-11", true);
    EXPECT_EQ(spot.usd_per_device_hour.at("h100-sxm-80gb").value, 2);
    EXPECT_EQ(spot.usd_per_device_hour.at("h100-sxm-80gb").source, "prices.csv, row 1: H100 spot in east");
}

TEST(Catalogue, RefusesPriceListsThatItCannotRead) {
    const auto refuses = [](const std::string& csv, const std::string& because) {
        try {
            (void)catalogue_from_price_csv(csv, "prices.csv", "2026-11", false);
            ADD_FAILURE() << csv;
        } catch (const InputError& error) {
            EXPECT_NE(std::string(error.what()).find(because), std::string::npos) << error.what();
        }
    };
    refuses("", "AcceleratorCount");
    refuses("AcceleratorName,Price\nH100,3\n", "AcceleratorCount");
    refuses(std::string(kColumns) + "a,H100,8.0,192,2048,free,east,,\n", "row 1, column Price");
    refuses(std::string(kColumns) + "a,H100,8.0\n", "3 fields");
    refuses(std::string(kColumns) + "a,Gaudi HL-205,8.0,192,2048,1,east,,\n", "at least one row");
}

}  // namespace
}  // namespace orrery::sim
