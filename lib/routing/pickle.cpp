#include "lib/routing/pickle.hpp"

#include <array>
#include <bit>
#include <cstring>
#include <optional>
#include <unordered_map>
#include <utility>

#include <fmt/format.h>

#include "lib/base/error.hpp"
#include "lib/base/text.hpp"

namespace moe::routing {
namespace {

constexpr std::size_t kMaxTensorRank = 8;

// Opcodes by the names of Python's pickletools, whose documentation defines them.
enum Opcode : std::uint8_t {
  kMarkOp = '(',
  kStop = '.',
  kPop = '0',
  kBinFloat = 'G',
  kBinInt = 'J',
  kBinInt1 = 'K',
  kBinInt2 = 'M',
  kNoneOp = 'N',
  kBinPersId = 'Q',
  kReduce = 'R',
  kShortBinString = 'U',
  kBinUnicode = 'X',
  kAppend = 'a',
  kGlobal = 'c',
  kAppends = 'e',
  kBinGet = 'h',
  kLongBinGet = 'j',
  kEmptyList = ']',
  kEmptyTuple = ')',
  kEmptyDict = '}',
  kTuple = 't',
  kBinPut = 'q',
  kLongBinPut = 'r',
  kSetItem = 's',
  kSetItems = 'u',
  kProto = 0x80,
  kTuple1 = 0x85,
  kTuple2 = 0x86,
  kTuple3 = 0x87,
  kNewTrue = 0x88,
  kNewFalse = 0x89,
  kLong1 = 0x8a,
  kShortBinUnicode = 0x8c,
  kBinUnicode8 = 0x8d,
  kStackGlobal = 0x93,
  kMemoize = 0x94,
  kFrame = 0x95,
};

enum class Name : std::uint8_t { kRebuildTensor, kOrderedDict, kStorageType };

struct KnownName {
  std::string_view module;
  std::string_view name;
  Name meaning;
  ElementType type;
};

// All that a stream may name.
constexpr std::array<KnownName, 12> kKnownNames = {{
    {"torch._utils", "_rebuild_tensor_v2", Name::kRebuildTensor, ElementType::kU8},
    {"collections", "OrderedDict", Name::kOrderedDict, ElementType::kU8},
    {"torch", "BoolStorage", Name::kStorageType, ElementType::kBool},
    {"torch", "ByteStorage", Name::kStorageType, ElementType::kU8},
    {"torch", "CharStorage", Name::kStorageType, ElementType::kI8},
    {"torch", "ShortStorage", Name::kStorageType, ElementType::kI16},
    {"torch", "IntStorage", Name::kStorageType, ElementType::kI32},
    {"torch", "LongStorage", Name::kStorageType, ElementType::kI64},
    {"torch", "HalfStorage", Name::kStorageType, ElementType::kF16},
    {"torch", "BFloat16Storage", Name::kStorageType, ElementType::kBf16},
    {"torch", "FloatStorage", Name::kStorageType, ElementType::kF32},
    {"torch", "DoubleStorage", Name::kStorageType, ElementType::kF64},
}};

class Machine {
 public:
  Machine(std::span<const std::byte> bytes, const std::string& where)
      : bytes_(bytes), where_(where) {}

  PickleDocument run() {
    while (true) {
      const auto opcode = static_cast<Opcode>(byte());
      if (opcode == kStop) break;
      if (!number_or_text(opcode) && !memo(opcode) && !container(opcode)) call(opcode);
    }
    document_.root = pop();
    if (!stack_.empty()) fail("values are left over at the end");
    if (document_.root.kind >= PickleKind::kName) fail("expected data, found a name");
    return std::move(document_);
  }

 private:
  struct Storage {
    std::string key;
    ElementType type = ElementType::kU8;
  };

  [[noreturn]] void fail(const std::string& message) const {
    throw Error(ErrorCode::kInput, fmt::format("{}: byte {}: {}", where_, at_, message));
  }

  // --- bytes ---
  std::uint8_t byte() {
    if (at_ == bytes_.size()) fail("the pickle stream ends too early; is the file whole?");
    return std::to_integer<std::uint8_t>(bytes_[at_++]);
  }
  template <typename Number>
  Number number() {
    Number value{};
    const std::string_view raw = raw_bytes(sizeof(Number));
    std::memcpy(&value, raw.data(), sizeof(Number));
    return value;
  }
  std::string_view raw_bytes(std::uint64_t count) {
    if (count > bytes_.size() - at_) fail("the pickle stream ends too early; is the file whole?");
    const std::string_view raw(reinterpret_cast<const char*>(bytes_.data() + at_), count);
    at_ += count;
    return raw;
  }
  std::string_view line() {
    const auto* begin = reinterpret_cast<const char*>(bytes_.data() + at_);
    const std::string_view rest(begin, bytes_.size() - at_);
    const std::size_t end = rest.find('\n');
    if (end == std::string_view::npos) fail("a name without its end");
    at_ += end + 1;
    return rest.substr(0, end);
  }

  // --- stack ---
  void push(PickleKind kind, std::uint64_t bits = 0) { stack_.push_back({kind, bits}); }
  PickleValue pop() {
    if (stack_.empty()) fail("an instruction without its operand");
    const PickleValue value = stack_.back();
    stack_.pop_back();
    return value;
  }
  PickleValue& top() {
    if (stack_.empty()) fail("an instruction without its operand");
    return stack_.back();
  }
  // Values above the last mark; the mark goes, too.
  std::vector<PickleValue> pop_to_mark() {
    std::size_t mark = stack_.size();
    while (mark > 0 && stack_[mark - 1].kind != PickleKind::kMark) --mark;
    if (mark == 0) fail("a mark is missing");
    std::vector<PickleValue> values(stack_.begin() + static_cast<std::ptrdiff_t>(mark),
                                    stack_.end());
    stack_.resize(mark - 1);
    return values;
  }
  void push_text(std::string_view text) {
    push(PickleKind::kText, document_.texts.size());
    document_.texts.emplace_back(text);
  }
  void push_list(PickleKind kind, std::vector<PickleValue> values) {
    push(kind, document_.lists.size());
    document_.lists.push_back(std::move(values));
  }

  // --- instructions ---
  bool number_or_text(Opcode opcode) {
    switch (opcode) {
      case kNoneOp:
        push(PickleKind::kNone);
        return true;
      case kNewTrue:
        push(PickleKind::kBool, 1);
        return true;
      case kNewFalse:
        push(PickleKind::kBool, 0);
        return true;
      case kBinInt:
        push_integer(number<std::int32_t>());
        return true;
      case kBinInt1:
        push_integer(byte());
        return true;
      case kBinInt2:
        push_integer(number<std::uint16_t>());
        return true;
      case kLong1:
        push_long(byte());
        return true;
      case kBinFloat:
        push(PickleKind::kReal, __builtin_bswap64(number<std::uint64_t>()));
        return true;
      case kShortBinString:
      case kShortBinUnicode:
        push_text(raw_bytes(byte()));
        return true;
      case kBinUnicode:
        push_text(raw_bytes(number<std::uint32_t>()));
        return true;
      case kBinUnicode8:
        push_text(raw_bytes(number<std::uint64_t>()));
        return true;
      default:
        return false;
    }
  }

  void push_integer(std::int64_t value) {
    push(PickleKind::kInteger, std::bit_cast<std::uint64_t>(value));
  }

  // Little-endian two's complement of so many bytes.
  void push_long(std::uint8_t count) {
    if (count > 8) fail("a whole number of more than 64 bits");
    const std::string_view raw = raw_bytes(count);
    std::uint64_t value = 0;
    for (std::size_t i = 0; i < count; ++i) {
      value |= static_cast<std::uint64_t>(static_cast<unsigned char>(raw[i])) << (8 * i);
    }
    const bool is_negative = count > 0 && (static_cast<unsigned char>(raw[count - 1U]) & 0x80) != 0;
    if (is_negative && count < 8) value |= ~std::uint64_t{0} << (8 * count);
    push(PickleKind::kInteger, value);
  }

  bool memo(Opcode opcode) {
    switch (opcode) {
      case kBinPut:
        memo_[byte()] = top();
        return true;
      case kLongBinPut:
        memo_[number<std::uint32_t>()] = top();
        return true;
      case kMemoize:
        memo_[memo_.size()] = top();
        return true;
      case kBinGet:
        recall(byte());
        return true;
      case kLongBinGet:
        recall(number<std::uint32_t>());
        return true;
      case kProto:
        if (byte() > 5) fail("a pickle protocol above 5");
        return true;
      case kFrame:
        (void)number<std::uint64_t>();
        return true;
      default:
        return false;
    }
  }

  void recall(std::uint64_t key) {
    const auto found = memo_.find(key);
    if (found == memo_.end()) fail(fmt::format("memo {} was never set", key));
    stack_.push_back(found->second);
  }

  bool container(Opcode opcode) {
    switch (opcode) {
      case kMarkOp:
        push(PickleKind::kMark);
        return true;
      case kPop:
        (void)pop();
        return true;
      case kEmptyList:
      case kEmptyTuple:
        push_list(PickleKind::kList, {});
        return true;
      case kEmptyDict:
        push_list(PickleKind::kDict, {});
        return true;
      case kTuple:
        push_list(PickleKind::kList, pop_to_mark());
        return true;
      case kTuple1:
        push_tuple(1);
        return true;
      case kTuple2:
        push_tuple(2);
        return true;
      case kTuple3:
        push_tuple(3);
        return true;
      case kAppend: {
        const PickleValue value = pop();
        extend(PickleKind::kList, {value});
        return true;
      }
      case kAppends:
        extend(PickleKind::kList, pop_to_mark());
        return true;
      case kSetItem: {
        const PickleValue value = pop();
        const PickleValue key = pop();
        extend(PickleKind::kDict, {key, value});
        return true;
      }
      case kSetItems: {
        std::vector<PickleValue> pairs = pop_to_mark();
        if (pairs.size() % 2 != 0) fail("a key without a value");
        extend(PickleKind::kDict, pairs);
        return true;
      }
      default:
        return false;
    }
  }

  void push_tuple(std::size_t count) {
    std::vector<PickleValue> values(count);
    for (std::size_t i = count; i-- > 0;) values[i] = pop();
    push_list(PickleKind::kList, std::move(values));
  }

  void extend(PickleKind kind, const std::vector<PickleValue>& values) {
    const PickleValue target = top();
    if (target.kind != kind) fail("items are added to a value that holds none");
    std::vector<PickleValue>& list = document_.lists[target.bits];
    list.insert(list.end(), values.begin(), values.end());
  }

  void call(Opcode opcode) {
    switch (opcode) {
      case kGlobal: {
        const std::string_view module = line();
        push_name(module, line());
        return;
      }
      case kStackGlobal: {
        const PickleValue name = pop();
        const PickleValue module = pop();
        push_name(document_.text(module), document_.text(name));
        return;
      }
      case kBinPersId:
        push_storage(pop());
        return;
      case kReduce: {
        const PickleValue arguments = pop();
        reduce(pop(), arguments);
        return;
      }
      default:
        fail(
            fmt::format("instruction 0x{:02x} is refused: a dump holds tensors, numbers, texts, "
                        "lists and dictionaries, and this file holds something else",
                        static_cast<unsigned>(opcode)));
    }
  }

  void push_name(std::string_view module, std::string_view name) {
    for (std::size_t i = 0; i < kKnownNames.size(); ++i) {
      if (kKnownNames[i].module != module || kKnownNames[i].name != name) continue;
      push(PickleKind::kName, i);
      return;
    }
    fail(
        fmt::format("the stream names {}.{}, which is refused: only tensors, numbers, texts, lists "
                    "and dictionaries are read",
                    printable(module), printable(name)));
  }

  const KnownName* known(PickleValue value) const {
    return value.kind == PickleKind::kName ? &kKnownNames[value.bits] : nullptr;
  }

  // ('storage', type, key, place, number of elements)
  void push_storage(PickleValue id) {
    const auto parts = document_.list(id);
    const KnownName* type = parts.size() == 5 ? known(parts[1]) : nullptr;
    if (type == nullptr || type->meaning != Name::kStorageType ||
        document_.text(parts[0]) != "storage" || parts[2].kind != PickleKind::kText) {
      fail("expected the description of a tensor's storage");
    }
    const Storage storage{std::string(document_.text(parts[2])), type->type};
    push(PickleKind::kStorage, storages_.size());
    storages_.push_back(storage);
  }

  void reduce(PickleValue function, PickleValue arguments) {
    const KnownName* name = known(function);
    if (name == nullptr || arguments.kind != PickleKind::kList) fail("a call that is refused");
    if (name->meaning == Name::kOrderedDict) {
      if (!document_.list(arguments).empty()) fail("an OrderedDict with contents");
      push_list(PickleKind::kDict, {});
      return;
    }
    if (name->meaning != Name::kRebuildTensor) fail("a call that is refused");
    rebuild_tensor(document_.list(arguments));
  }

  // (storage, offset, shape, strides, requires_grad, hooks)
  void rebuild_tensor(std::span<const PickleValue> arguments) {
    PickleTensor tensor;
    if (arguments.size() < 6 || arguments[0].kind != PickleKind::kStorage ||
        !PickleDocument::as_integer(arguments[1], tensor.offset) || tensor.offset < 0) {
      fail("expected a tensor's storage and offset");
    }
    const Storage& storage = storages_[arguments[0].bits];
    tensor.storage = storage.key;
    tensor.type = storage.type;
    const auto shape = document_.list(arguments[2]);
    const auto strides = document_.list(arguments[3]);
    if (shape.size() != strides.size() || shape.size() > kMaxTensorRank)
      fail("a tensor's shape is odd");
    for (std::size_t axis = 0; axis < shape.size(); ++axis) {
      std::int64_t size = 0;
      std::int64_t stride = 0;
      if (!PickleDocument::as_integer(shape[axis], size) ||
          !PickleDocument::as_integer(strides[axis], stride) || size < 0 || stride < 0) {
        fail("a tensor's shape or stride is no whole number of 0 or more");
      }
      tensor.shape.push_back(size);
      tensor.strides.push_back(stride);
    }
    push(PickleKind::kTensor, document_.tensors.size());
    document_.tensors.push_back(std::move(tensor));
  }

  std::span<const std::byte> bytes_;
  const std::string& where_;
  std::size_t at_ = 0;
  PickleDocument document_;
  std::vector<PickleValue> stack_;
  std::vector<Storage> storages_;
  std::unordered_map<std::uint64_t, PickleValue> memo_;
};

}  // namespace

std::string_view PickleDocument::text(PickleValue value) const {
  return value.kind == PickleKind::kText ? std::string_view(texts[value.bits]) : std::string_view();
}

std::span<const PickleValue> PickleDocument::list(PickleValue value) const {
  if (value.kind != PickleKind::kList && value.kind != PickleKind::kDict) return {};
  return lists[value.bits];
}

const PickleTensor* PickleDocument::tensor(PickleValue value) const {
  return value.kind == PickleKind::kTensor ? &tensors[value.bits] : nullptr;
}

const PickleValue* PickleDocument::find(PickleValue dict, std::string_view key) const {
  if (dict.kind != PickleKind::kDict) return nullptr;
  const std::vector<PickleValue>& pairs = lists[dict.bits];
  for (std::size_t i = 0; i + 1 < pairs.size(); i += 2) {
    if (pairs[i].kind == PickleKind::kText && texts[pairs[i].bits] == key) return &pairs[i + 1];
  }
  return nullptr;
}

bool PickleDocument::as_integer(PickleValue value, std::int64_t& out) {
  if (value.kind != PickleKind::kInteger) return false;
  out = std::bit_cast<std::int64_t>(value.bits);
  return true;
}

PickleDocument read_pickle(std::span<const std::byte> bytes, const std::string& where) {
  return Machine(bytes, where).run();
}

}  // namespace moe::routing
