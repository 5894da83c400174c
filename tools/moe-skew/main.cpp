#include "lib/app/skew/moe_skew.hpp"

int main(int argc, char** argv) {
  return moe::app::moe_skew_main(argc, argv);
}
