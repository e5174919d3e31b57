// One element of a foreign XML file; errors name file, element and attribute. Private to this folder because of
// pugixml's types.
#pragma once

#include <memory>
#include <pugixml.hpp>
#include <string>
#include <vector>

#include "topologies/importers/foreign_text.h"

namespace orrery::topologies {

class XmlElement {
  public:
    /// The root element of a document. Throws InputError if the text is not well-formed or exceeds the limits.
    [[nodiscard]] static XmlElement parse(const std::string& text, const std::string& file);

    [[nodiscard]] std::string name() const { return node_.name(); }
    [[nodiscard]] std::vector<XmlElement> children() const;
    /// "FILE: /system/cpu[2]/pci[1]": siblings of the same name are counted from 1.
    [[nodiscard]] std::string place() const;

    [[nodiscard]] bool has(const char* attribute) const { return !node_.attribute(attribute).empty(); }
    [[nodiscard]] std::string text(const char* attribute) const;  // required
    [[nodiscard]] std::string text_or(const char* attribute, const std::string& fallback) const;
    /// Decimal, or hexadecimal after "0x".
    [[nodiscard]] std::int64_t integer(const char* attribute, const IntegerRange& range) const;
    [[nodiscard]] std::int64_t integer_or(const char* attribute, const IntegerRange& range,
                                          std::int64_t fallback) const;
    [[nodiscard]] double number_or(const char* attribute, double low, double high, double fallback) const;
    [[noreturn]] void fail(const char* attribute, const std::string& allowed) const;

    /// Adds a note for each attribute that is not in `read`.
    void note_unread(const std::vector<std::string>& read, Notes& notes) const;

  private:
    XmlElement(std::shared_ptr<const pugi::xml_document> document, pugi::xml_node node, std::string file)
        : document_(std::move(document)), node_(node), file_(std::move(file)) {}

    std::shared_ptr<const pugi::xml_document> document_;
    pugi::xml_node node_;
    std::string file_;
};

}  // namespace orrery::topologies
