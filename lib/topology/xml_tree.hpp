#pragma once

// XML as a plain tree, read by pugixml within bounds: size, depth, elements, attributes. No
// external entity is ever resolved and no entity of a document's own is expanded, so a small file
// cannot become a large one.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace moe::topology {

inline constexpr std::size_t kMaxXmlBytes = std::size_t{16} << 20;
inline constexpr std::int64_t kMaxXmlElements = 200000;
inline constexpr int kMaxXmlDepth = 256;

struct XmlAttribute {
  std::string name;
  std::string value;
};

struct XmlElement {
  std::string name;
  std::vector<XmlAttribute> attributes;
  std::vector<XmlElement> children;
  std::string text;       // character data of its own
  std::int32_t line = 0;  // where it begins

  // nullptr when absent; the first when given twice.
  [[nodiscard]] const std::string* find(std::string_view attribute) const;
  [[nodiscard]] std::string get(std::string_view attribute) const;  // "" when absent
  // Whole attribute as an integer; nullopt when absent or anything else.
  [[nodiscard]] std::optional<std::int64_t> integer(std::string_view attribute) const;
  [[nodiscard]] std::optional<double> number(std::string_view attribute) const;
};

struct XmlDocument {
  XmlElement root;
  std::int64_t num_elements = 0;
  bool has_declaration = false;  // <?xml ...?>
};

// Throws Error(kInput) with the line of the fault.
[[nodiscard]] XmlDocument read_xml(std::string_view text, const std::string& where);

// Name of the root element, found without parsing the rest; "" when there is none.
[[nodiscard]] std::string xml_root_name(std::string_view text);

}  // namespace moe::topology
