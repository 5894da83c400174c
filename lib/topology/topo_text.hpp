#pragma once

// The text of `nvidia-smi topo -m` as cells, before anything is made of it.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lib/topology/graph.hpp"

namespace moe::topology {

struct TopoCell {
  PathKind path = PathKind::kUnknown;
  std::int32_t num_nvlinks = 0;
};

struct TopoRow {
  std::string name;
  std::vector<TopoCell> cells;  // as many as were readable
  std::string cpus;             // as printed; empty: not printed
  std::string numa;
  std::string gpu_numa;
  std::int32_t line = 0;
};

struct NicLegend {
  std::string name;
  std::string device;
};

struct TopoText {
  std::vector<std::string> columns;
  std::int32_t header_line = 0;
  std::vector<TopoRow> rows;
  std::vector<NicLegend> legend;
  std::vector<Remark> remarks;
};

// "NV12", "SYS", "SOC", ...; nullopt for anything else.
[[nodiscard]] std::optional<TopoCell> parse_topo_cell(std::string_view token);

// GPU0, GPU1, ...
[[nodiscard]] bool is_gpu_name(std::string_view token);

// Lines without terminal codes and carriage returns.
[[nodiscard]] std::vector<std::string> clean_lines(std::string_view text);
[[nodiscard]] std::vector<std::string_view> split_words(std::string_view line);

// Index of the header line, or nullopt.
[[nodiscard]] std::optional<std::size_t> find_topo_header(const std::vector<std::string>& lines);

// Throws Error(kInput) when there is no matrix or it is unreasonably large.
[[nodiscard]] TopoText read_topo_text(std::string_view text, const std::string& where);

}  // namespace moe::topology
