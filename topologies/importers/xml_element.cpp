#include "topologies/importers/xml_element.h"

#include <algorithm>
#include <set>

#include "core/error.h"

namespace orrery::topologies {
namespace {

// NCCL's own limits are 128 children and 16 attributes per element, and values of 255 characters.
constexpr std::size_t kMostElementDepth = 32;
constexpr std::size_t kMostElements = 65536;
constexpr std::size_t kMostAttributes = 64;
constexpr std::size_t kMostValueBytes = 255;

std::string line_at(const std::string& text, std::ptrdiff_t offset) {
    const auto end = text.begin() + std::min(offset, static_cast<std::ptrdiff_t>(text.size()));
    return std::to_string(std::count(text.begin(), end, '\n') + 1);
}

void check_attributes(const pugi::xml_node& node, const std::string& file) {
    std::set<std::string> names;
    for (const pugi::xml_attribute& attribute : node.attributes()) {
        const std::string place = file + ": <" + node.name() + "> " + shown(attribute.name());
        if (!names.insert(attribute.name()).second) throw InputError(place + ": the attribute appears twice");
        if (names.size() > kMostAttributes) {
            throw InputError(place + ": allowed: at most " + std::to_string(kMostAttributes) + " attributes");
        }
        if (std::char_traits<char>::length(attribute.value()) > kMostValueBytes) {
            throw InputError(place, "value", shown(attribute.value()),
                             "at most " + std::to_string(kMostValueBytes) + " bytes");
        }
    }
}

/// Walks the tree without recursion, so that a deep tree is refused before anything recurses into it.
void check_tree(const pugi::xml_document& document, const std::string& file) {
    std::size_t elements = 0, depth = 0;
    for (pugi::xml_node node = document.first_child(); node;) {
        if (node.type() == pugi::node_doctype) {
            throw InputError(file + ": got a DOCTYPE; allowed: elements, attributes and comments");
        }
        if (node.type() == pugi::node_element) {
            if (++elements > kMostElements) {
                throw InputError(file, "elements", "more than " + std::to_string(kMostElements), "fewer");
            }
            check_attributes(node, file);
        }
        if (node.first_child()) {
            if (++depth > kMostElementDepth) {
                throw InputError(file, "depth", "more than " + std::to_string(kMostElementDepth), "fewer");
            }
            node = node.first_child();
            continue;
        }
        while (node && !node.next_sibling()) {
            node = node.parent();
            if (node == document) return;
            --depth;
        }
        node = node.next_sibling();
    }
}

}  // namespace

XmlElement XmlElement::parse(const std::string& text, const std::string& file) {
    check_foreign_text(text, file);
    auto document = std::make_shared<pugi::xml_document>();
    // A DOCTYPE is parsed only to be refused; pugixml expands only XML's five predefined entities.
    const pugi::xml_parse_result result =
        document->load_buffer(text.data(), text.size(), pugi::parse_default | pugi::parse_doctype, pugi::encoding_utf8);
    if (!result) {
        throw InputError(file + ": line " + line_at(text, result.offset) +
                         ": not well-formed XML: " + result.description());
    }
    check_tree(*document, file);
    const pugi::xml_node root = document->document_element();
    for (const pugi::xml_node& other : document->children()) {
        if (other.type() == pugi::node_element && other != root) {
            throw InputError(file + ": got " + shown(other.name()) + " after " + shown(root.name()) +
                             "; allowed: one root element");
        }
    }
    return {document, root, file};
}

std::vector<XmlElement> XmlElement::children() const {
    std::vector<XmlElement> all;
    for (const pugi::xml_node& child : node_.children()) {
        if (child.type() == pugi::node_element) all.push_back({document_, child, file_});
    }
    return all;
}

std::string XmlElement::place() const {
    std::vector<std::string> steps;
    for (pugi::xml_node node = node_; node && node.type() == pugi::node_element; node = node.parent()) {
        int position = 1;
        for (pugi::xml_node before = node.previous_sibling(node.name()); before;
             before = before.previous_sibling(node.name())) {
            ++position;
        }
        const bool is_root = node.parent().type() == pugi::node_document;
        steps.push_back("/" + std::string(node.name()) + (is_root ? "" : "[" + std::to_string(position) + "]"));
    }
    std::string path = file_ + ": ";
    for (auto step = steps.rbegin(); step != steps.rend(); ++step) path += *step;
    return path;
}

std::string XmlElement::text(const char* attribute) const {
    if (!has(attribute)) throw InputError(place() + ": " + attribute + ": the attribute is missing");
    return node_.attribute(attribute).value();
}

std::string XmlElement::text_or(const char* attribute, const std::string& fallback) const {
    return has(attribute) ? std::string(node_.attribute(attribute).value()) : fallback;
}

std::int64_t XmlElement::integer(const char* attribute, const IntegerRange& range) const {
    const std::string value = text(attribute);
    const bool hexadecimal = value.starts_with("0x") || value.starts_with("0X");
    const std::optional<std::int64_t> number =
        hexadecimal ? integer_of(std::string_view(value).substr(2), 16) : integer_of(value);
    if (!number || *number < range.low || *number > range.high) fail(attribute, range_text(range));
    return *number;
}

std::int64_t XmlElement::integer_or(const char* attribute, const IntegerRange& range, std::int64_t fallback) const {
    return has(attribute) ? integer(attribute, range) : fallback;
}

double XmlElement::number_or(const char* attribute, double low, double high, double fallback) const {
    if (!has(attribute)) return fallback;
    const std::optional<double> number = number_of(node_.attribute(attribute).value());
    if (!number || *number < low || *number > high) {
        fail(attribute, "a number from " + std::to_string(low) + " to " + std::to_string(high));
    }
    return *number;
}

void XmlElement::fail(const char* attribute, const std::string& allowed) const {
    throw InputError(place(), attribute, shown(node_.attribute(attribute).value()), allowed);
}

void XmlElement::note_unread(const std::vector<std::string>& read, Notes& notes) const {
    for (const pugi::xml_attribute& attribute : node_.attributes()) {
        if (std::find(read.begin(), read.end(), attribute.name()) == read.end()) {
            notes.add("<" + name() + "> " + shown(attribute.name()) + ": not read");
        }
    }
}

}  // namespace orrery::topologies
