#include "plan/expert_profile.h"

#include <algorithm>
#include <cstring>

namespace bellhop::plan {
namespace {

constexpr char kMagic[4] = {'S', 'T', 'R', 'P'};
constexpr uint32_t kVersion = 1;
constexpr size_t kHeaderBytes = 24;
constexpr int32_t kMaxDimension = 65535;  // pairs are stored as u16

void Append32(std::vector<std::byte>* out, uint32_t value) {
  for (int shift = 0; shift < 32; shift += 8) out->push_back(static_cast<std::byte>(value >> shift));
}

void Append16(std::vector<std::byte>* out, uint32_t value) {
  out->push_back(static_cast<std::byte>(value));
  out->push_back(static_cast<std::byte>(value >> 8));
}

uint32_t Load32(const std::byte* p) {
  uint32_t value;
  std::memcpy(&value, p, sizeof(value));
  return value;
}

uint32_t Load16(const std::byte* p) {
  uint16_t value;
  std::memcpy(&value, p, sizeof(value));
  return value;
}

std::vector<int32_t> RankTable(const ExpertProfile& profile) {
  std::vector<int32_t> table(static_cast<size_t>(profile.layers) * static_cast<size_t>(profile.experts), -1);
  for (size_t i = 0; i < profile.ranked.size(); ++i) {
    const ExpertKey& key = profile.ranked[i];
    table[key.layer.index() * static_cast<size_t>(profile.experts) + key.expert.index()] = static_cast<int32_t>(i);
  }
  return table;
}

}  // namespace

Result<ExpertProfile> RankExperts(const std::vector<std::vector<uint64_t>>& counts, int32_t experts) {
  if (counts.empty() || counts.size() > kMaxDimension || experts < 1 || experts > kMaxDimension) {
    return InvalidArgument("a profile needs 1 to {} layers and experts, got {} and {}", kMaxDimension, counts.size(),
                           experts);
  }
  ExpertProfile profile;
  profile.layers = static_cast<int32_t>(counts.size());
  profile.experts = experts;
  for (size_t l = 0; l < counts.size(); ++l) {
    if (!counts[l].empty() && counts[l].size() != static_cast<size_t>(experts)) {
      return InvalidArgument("layer {} has {} counts, expected {}", l, counts[l].size(), experts);
    }
    for (size_t e = 0; e < counts[l].size(); ++e) {
      profile.ranked.push_back({LayerId(static_cast<int32_t>(l)), ExpertId(static_cast<int32_t>(e))});
    }
  }
  std::stable_sort(profile.ranked.begin(), profile.ranked.end(), [&](const ExpertKey& a, const ExpertKey& b) {
    return counts[a.layer.index()][a.expert.index()] > counts[b.layer.index()][b.expert.index()];
  });
  return profile;
}

std::vector<std::byte> SerializeStrp(const ExpertProfile& profile) {
  std::vector<std::byte> out;
  for (char c : kMagic) out.push_back(static_cast<std::byte>(c));
  Append32(&out, kVersion);
  Append32(&out, static_cast<uint32_t>(profile.layers));
  Append32(&out, static_cast<uint32_t>(profile.experts));
  Append32(&out, static_cast<uint32_t>(profile.ranked.size()));  // slots: as writers of the format store it
  Append32(&out, static_cast<uint32_t>(profile.ranked.size()));
  for (const ExpertKey& key : profile.ranked) {
    Append16(&out, static_cast<uint32_t>(key.layer.value));
    Append16(&out, static_cast<uint32_t>(key.expert.value));
  }
  for (const int32_t rank : RankTable(profile)) Append32(&out, static_cast<uint32_t>(rank));
  return out;
}

Result<ExpertProfile> ParseStrp(HostSpan<const std::byte> bytes, std::string_view file_name) {
  if (bytes.size() < kHeaderBytes) {
    return Corrupt("{}: {} bytes, an STRP profile has at least {}; make one with `bellhop profile`", file_name,
                   bytes.size(), kHeaderBytes);
  }
  if (std::memcmp(bytes.data(), kMagic, sizeof(kMagic)) != 0) {
    return Corrupt("{}: offset 0: no STRP magic, this is not an expert profile", file_name);
  }
  if (const uint32_t version = Load32(bytes.data() + 4); version != kVersion) {
    return Unsupported("{}: offset 4: STRP version {}, only {} is known", file_name, version, kVersion);
  }
  const uint32_t layers = Load32(bytes.data() + 8), experts = Load32(bytes.data() + 12);
  const uint64_t ranked = Load32(bytes.data() + 20);
  if (layers < 1 || layers > kMaxDimension || experts < 1 || experts > kMaxDimension) {
    return Corrupt("{}: offset 8: {} layers and {} experts, 1 to {} are possible", file_name, layers, experts,
                   kMaxDimension);
  }
  const uint64_t cells = static_cast<uint64_t>(layers) * experts;
  const uint64_t list_end = kHeaderBytes + 4 * ranked;
  if (ranked > cells) {
    return Corrupt("{}: offset 20: {} ranked pairs, but {} x {} experts", file_name, ranked, layers, experts);
  }
  if (list_end > bytes.size()) {
    return Corrupt("{}: {} bytes, but {} ranked pairs need {}; the file is cut off", file_name, bytes.size(), ranked,
                   list_end);
  }
  const bool has_table = bytes.size() > list_end;
  if (has_table && bytes.size() - list_end < 4 * cells) {
    return Corrupt("{}: offset {}: rank table of {} bytes, expected {}", file_name, list_end, bytes.size() - list_end,
                   4 * cells);
  }

  ExpertProfile profile;
  profile.layers = static_cast<int32_t>(layers);
  profile.experts = static_cast<int32_t>(experts);
  profile.ranked.reserve(ranked);
  std::vector<bool> seen(cells);
  for (uint64_t i = 0; i < ranked; ++i) {
    const size_t at = kHeaderBytes + 4 * i;
    const uint32_t layer = Load16(bytes.data() + at), expert = Load16(bytes.data() + at + 2);
    if (layer >= layers || expert >= experts) {
      return Corrupt("{}: offset {}: pair (layer {}, expert {}) outside {} x {}", file_name, at, layer, expert, layers,
                     experts);
    }
    const size_t cell = static_cast<size_t>(layer) * experts + expert;
    if (seen[cell])
      return Corrupt("{}: offset {}: (layer {}, expert {}) is ranked twice", file_name, at, layer, expert);
    seen[cell] = true;
    profile.ranked.push_back({LayerId(static_cast<int32_t>(layer)), ExpertId(static_cast<int32_t>(expert))});
  }
  if (has_table) {
    const std::vector<int32_t> table = RankTable(profile);
    for (size_t cell = 0; cell < cells; ++cell) {
      const size_t at = list_end + 4 * cell;
      if (static_cast<int32_t>(Load32(bytes.data() + at)) != table[cell]) {
        return Corrupt("{}: offset {}: the rank table disagrees with the ranked list", file_name, at);
      }
    }
  }
  return profile;
}

}  // namespace bellhop::plan
