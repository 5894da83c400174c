#include "lib/json/schema_check.hpp"

#include <string>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "lib/base/error.hpp"
#include "lib/json/read.hpp"

namespace moe::json {
namespace {

std::string violations(const std::string& schema, const std::string& document) {
  return describe(check_schema(parse(document, "document"), parse(schema, "schema")));
}

TEST(SchemaCheck, ChecksTypes) {
  EXPECT_EQ(violations(R"({"type": "integer"})", "3"), "");
  EXPECT_EQ(violations(R"({"type": "integer"})", "3.0"), "");  // as 2020-12 counts
  EXPECT_EQ(violations(R"({"type": "integer"})", "3.5"), "/: expected integer, found 3.5");
  EXPECT_EQ(violations(R"({"type": "number"})", "3"), "");
  EXPECT_EQ(violations(R"({"type": ["string", "null"]})", "null"), "");
  EXPECT_EQ(violations(R"({"type": ["string", "null"]})", "1"),
            "/: expected one of [\"string\",\"null\"], found 1");
  EXPECT_EQ(violations(R"({"type": "boolean"})", "0"), "/: expected boolean, found 0");
}

TEST(SchemaCheck, ChecksObjects) {
  const std::string schema = R"({"type": "object", "required": ["a"], "additionalProperties": false,
      "properties": {"a": {"type": "string"}, "b": {"type": "object",
      "additionalProperties": {"type": "number"}, "propertyNames": {"pattern": "^[a-z]+$"}}}})";
  EXPECT_EQ(violations(schema, R"({"a": "x", "b": {"c": 1}})"), "");
  EXPECT_EQ(violations(schema, "{}"), "/: missing \"a\"");
  EXPECT_EQ(violations(schema, R"({"a": "x", "z": 1})"), "/: unknown key \"z\"");
  EXPECT_EQ(violations(schema, R"({"a": 1})"), "/a: expected string, found 1");
  EXPECT_EQ(violations(schema, R"({"a": "x", "b": {"c": "1"}})"),
            "/b/c: expected number, found \"1\"");
  EXPECT_EQ(violations(schema, R"({"a": "x", "b": {"C": 1}})"),
            "/b/C: \"C\" does not match ^[a-z]+$");
  EXPECT_EQ(violations(R"({"minProperties": 1})", "{}"), "/: expected at least 1 entries, found 0");
}

TEST(SchemaCheck, ChecksArrays) {
  const std::string schema = R"({"minItems": 1, "maxItems": 2, "items": {"type": "integer"}})";
  EXPECT_EQ(violations(schema, "[1, 2]"), "");
  EXPECT_EQ(violations(schema, "[]"), "/: expected at least 1 entries, found 0");
  EXPECT_EQ(violations(schema, "[1, 2, 3]"), "/: expected at most 2 entries, found 3");
  EXPECT_EQ(violations(schema, "[1, \"x\"]"), "/1: expected integer, found \"x\"");
}

TEST(SchemaCheck, ChecksValues) {
  EXPECT_EQ(violations(R"({"const": "x"})", "\"y\""), "/: expected \"x\", found \"y\"");
  EXPECT_EQ(violations(R"({"enum": ["a", 1]})", "1"), "");
  EXPECT_EQ(violations(R"({"enum": ["a", 1]})", "2"), "/: expected one of [\"a\",1], found 2");
  EXPECT_EQ(violations(R"({"minimum": 0})", "-0.5"), "/: expected at least 0, found -0.5");
  EXPECT_EQ(violations(R"({"maximum": 5})", "6"), "/: expected at most 5, found 6");
  EXPECT_EQ(violations(R"({"exclusiveMinimum": 0})", "0"), "/: expected more than 0, found 0");
  EXPECT_EQ(violations(R"({"minLength": 1})", "\"\""), "/: expected at least 1 characters");
  EXPECT_EQ(violations(R"({"minimum": 0})", "\"text\""), "");  // says nothing about text
}

TEST(SchemaCheck, ChecksAlternatives) {
  const std::string any = R"({"anyOf": [{"type": "string"}, {"minimum": 5, "type": "number"}]})";
  EXPECT_EQ(violations(any, "\"x\""), "");
  EXPECT_EQ(violations(any, "7"), "");
  EXPECT_EQ(violations(any, "3"),
            "/: matches none of 2 alternatives; the closest: /: expected string, found 3");
  const std::string one = R"({"oneOf": [{"type": "number"}, {"minimum": 5}]})";
  EXPECT_EQ(violations(one, "3"), "");
  EXPECT_EQ(violations(one, "7"), "/: matches 2 alternatives where one is allowed");
  EXPECT_EQ(violations(R"({"allOf": [{"minimum": 1}, {"maximum": 3}]})", "4"),
            "/: expected at most 3, found 4");
  EXPECT_EQ(violations(R"({"not": {"type": "string"}})", "\"x\""),
            "/: matches what is not allowed");
  EXPECT_EQ(violations(R"({"properties": {"a": false}})", R"({"a": 1})"),
            "/a: nothing is allowed here");
}

TEST(SchemaCheck, FollowsReferences) {
  const std::string schema =
      R"({"$ref": "#/$defs/tree", "$defs": {"tree": {"type": "object",
         "additionalProperties": false,
         "properties": {"left": {"$ref": "#/$defs/tree"}, "right": {"$ref": "#/$defs/tree"}}}}})";
  EXPECT_EQ(violations(schema, R"({"left": {"right": {}}})"), "");
  EXPECT_EQ(violations(schema, R"({"left": {"right": {"up": 1}}})"),
            "/left/right: unknown key \"up\"");
}

TEST(SchemaCheck, EscapesPointers) {
  EXPECT_EQ(violations(R"({"additionalProperties": {"type": "null"}})", R"({"a/b~": 1})"),
            "/a~1b~0: expected null, found 1");
}

TEST(SchemaCheck, StopsAtTheLimitOfErrors) {
  const Json document = parse("[1, 2, 3, 4, 5]", "x");
  const Json schema = parse(R"({"items": {"type": "string"}})", "x");
  EXPECT_EQ(check_schema(document, schema, 3).size(), 3U);
}

TEST(SchemaCheck, RefusesASchemaItDoesNotUnderstand) {
  for (const char* schema :
       {R"({"patternProperties": {}})", R"({"type": "float"})", R"({"pattern": "("})",
        R"({"$ref": "other.json"})", R"({"$ref": "#/$defs/none"})", R"({"required": 5})", "[]",
        R"({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a"}}})"}) {
    const auto check_both = [&] {
      (void)violations(schema, R"({"x": "y"})");
      (void)violations(schema, "\"y\"");
    };
    EXPECT_THROW(check_both(), Error) << schema;
  }
}

TEST(SchemaCheck, CountsATextTooLongForAPatternAsAViolation) {
  const std::string text(100'000, 'a');
  EXPECT_NE(violations(R"({"pattern": "^a*$"})", '"' + text + '"'), "");
}

}  // namespace
}  // namespace moe::json
