#include "lib/topology/xml_tree.hpp"

#include <algorithm>
#include <pugixml.hpp>

#include <fmt/format.h>

#include "lib/base/error.hpp"
#include "lib/base/parse_number.hpp"
#include "lib/base/text.hpp"

namespace moe::topology {
namespace {

constexpr std::size_t kMaxAttributes = 4096;

// Lines of ascending offsets, counted once over the text.
class LineCounter {
 public:
  explicit LineCounter(std::string_view text) {
    starts_.push_back(0);
    for (std::size_t i = 0; i < text.size(); ++i) {
      if (text[i] == '\n') starts_.push_back(i + 1);
    }
  }
  [[nodiscard]] std::int32_t line_of(std::ptrdiff_t offset) const {
    if (offset < 0) return 0;
    const auto at =
        std::upper_bound(starts_.begin(), starts_.end(), static_cast<std::size_t>(offset));
    return static_cast<std::int32_t>(at - starts_.begin());
  }

 private:
  std::vector<std::size_t> starts_;
};

class Builder {
 public:
  Builder(std::string_view text, const std::string& where) : lines_(text), where_(where) {}

  XmlElement build(const pugi::xml_node& node, int depth) {
    XmlElement element;
    element.name = node.name();
    element.line = lines_.line_of(node.offset_debug());
    if (depth > kMaxXmlDepth) fail(element, fmt::format("nested deeper than {}", kMaxXmlDepth));
    if (++num_elements_ > kMaxXmlElements) {
      fail(element, fmt::format("more than {} elements", kMaxXmlElements));
    }
    for (const pugi::xml_attribute& attribute : node.attributes()) {
      if (element.attributes.size() == kMaxAttributes) {
        fail(element, fmt::format("more than {} attributes", kMaxAttributes));
      }
      element.attributes.push_back({attribute.name(), attribute.value()});
    }
    for (const pugi::xml_node& child : node.children()) {
      if (child.type() == pugi::node_element) {
        element.children.push_back(build(child, depth + 1));
      } else if (child.type() == pugi::node_pcdata || child.type() == pugi::node_cdata) {
        element.text += child.value();
      }
    }
    return element;
  }

  [[nodiscard]] std::int64_t num_elements() const { return num_elements_; }

 private:
  [[noreturn]] void fail(const XmlElement& element, const std::string& message) const {
    throw Error(ErrorCode::kInput, fmt::format("{}: line {}: <{}>: {}", where_, element.line,
                                               printable(element.name), message));
  }

  LineCounter lines_;
  const std::string& where_;
  std::int64_t num_elements_ = 0;
};

}  // namespace

const std::string* XmlElement::find(std::string_view attribute) const {
  for (const XmlAttribute& entry : attributes) {
    if (entry.name == attribute) return &entry.value;
  }
  return nullptr;
}

std::string XmlElement::get(std::string_view attribute) const {
  const std::string* value = find(attribute);
  return value == nullptr ? "" : *value;
}

std::optional<std::int64_t> XmlElement::integer(std::string_view attribute) const {
  const std::string* value = find(attribute);
  if (value == nullptr) return std::nullopt;
  return parse_number<std::int64_t>(*value);
}

std::optional<double> XmlElement::number(std::string_view attribute) const {
  const std::string* value = find(attribute);
  if (value == nullptr) return std::nullopt;
  return parse_number<double>(*value);
}

XmlDocument read_xml(std::string_view text, const std::string& where) {
  if (text.size() > kMaxXmlBytes) {
    throw Error(ErrorCode::kInput,
                fmt::format("{}: {} bytes; at most {} are read", where, text.size(), kMaxXmlBytes));
  }
  pugi::xml_document parsed;
  const pugi::xml_parse_result result = parsed.load_buffer(
      text.data(), text.size(), pugi::parse_default | pugi::parse_declaration, pugi::encoding_utf8);
  if (!result) {
    throw Error(ErrorCode::kInput,
                fmt::format("{}: line {}: {}", where, LineCounter(text).line_of(result.offset),
                            result.description()));
  }
  const pugi::xml_node root = parsed.document_element();
  if (!root) throw Error(ErrorCode::kInput, fmt::format("{}: XML without an element", where));
  if (root.next_sibling(root.name())) {
    throw Error(ErrorCode::kInput,
                fmt::format("{}: more than one <{}>", where, printable(root.name())));
  }
  XmlDocument document;
  Builder builder(text, where);
  document.root = builder.build(root, 1);
  document.num_elements = builder.num_elements();
  document.has_declaration = parsed.first_child().type() == pugi::node_declaration;
  return document;
}

std::string xml_root_name(std::string_view text) {
  std::size_t at = 0;
  while ((at = text.find('<', at)) != std::string_view::npos) {
    const std::string_view rest = text.substr(at);
    if (rest.starts_with("<!--")) {
      const std::size_t end = text.find("-->", at);
      if (end == std::string_view::npos) return "";
      at = end;
    } else if (rest.starts_with("<?") || rest.starts_with("<!")) {
      ++at;
    } else {
      const std::size_t end = rest.find_first_of(" \t\r\n/>", 1);
      return std::string(rest.substr(1, std::min(end, rest.size()) - 1));
    }
  }
  return "";
}

}  // namespace moe::topology
