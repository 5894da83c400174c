moe_add_test(planner_step_test
  SOURCES end_to_end_test.cpp expert_hits_test.cpp serving_test.cpp step_time_test.cpp
  DEPS moe::planner moe::model moe::test_support moe::base)
