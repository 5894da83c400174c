moe_add_test(planner_capacity_test
  SOURCES cost_test.cpp power_test.cpp quick_formulas_test.cpp sensitivity_test.cpp size_test.cpp
  DEPS moe::planner moe::model moe::test_support)
