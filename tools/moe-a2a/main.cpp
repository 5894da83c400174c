#include "lib/app/a2a/moe_a2a.hpp"

int main(int argc, char** argv) {
  return moe::app::moe_a2a_main(argc, argv);
}
