#include "kernels/api.hpp"
