#include "lib/app/plan/moe_plan.hpp"

int main(int argc, char** argv) {
  return moe::app::moe_plan_main(argc, argv);
}
