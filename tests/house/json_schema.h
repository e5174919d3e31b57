// A validator for the subset of JSON Schema 2020-12 that docs/schema uses, for tests of the documents we write. A
// keyword outside this subset is an error in the schema, never silently ignored.
//
//     const house::SchemaSet schemas = house::repository_schemas(ORRERY_SOURCE_DIR);
//     EXPECT_EQ(schemas.check(text), "");          // picks the schema by the document's "schema" value
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>

namespace orrery::house {

class SchemaSet {
  public:
    using json = nlohmann::json;

    void add(const std::string& file_name, json schema) { files_[file_name] = std::move(schema); }

    /// Loads every *.schema.json of a folder. Throws std::runtime_error naming a file that is not JSON.
    [[nodiscard]] static SchemaSet load(const std::string& folder);

    [[nodiscard]] const std::map<std::string, json>& files() const { return files_; }

    /// The file whose properties.schema.const is `kind` ("orrery.plan/1"), or "".
    [[nodiscard]] std::string file_for(const std::string& kind) const;

    /// All violations of the schema named by the document's "schema" value, one per line; "" if there are none.
    [[nodiscard]] std::string check(const std::string& document_text) const;
    [[nodiscard]] std::string check_against(const json& document, const std::string& file) const;

    /// Errors in the schema file itself: unknown keywords and dangling $ref, one per line.
    [[nodiscard]] std::string check_schema(const std::string& file) const;

  private:
    std::map<std::string, json> files_;
};

/// The schemas of this repository; `source_dir` is its root.
[[nodiscard]] SchemaSet repository_schemas(const std::string& source_dir);

}  // namespace orrery::house
