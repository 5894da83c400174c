// Goal: serve trusts a server behind TLS only with a certificate that it was told to trust, for the
// host that was asked for, and uses a proxy only when told to. Method: the real binary, a scripted
// server, and in front of it a TLS terminator or proxy (tls_front.py) with certificates made here.

#include <csignal>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/json/read.hpp"
#include "lib/scripted_server/server_thread.hpp"
#include "tests/support/temp_dir.hpp"
#include "tests/tools/tool_report.hpp"

namespace moe::test {
namespace {

using scripted_server::ServerThread;
using ::testing::HasSubstr;

scripted_server::Script quick_script() {
  return scripted_server::parse_script(json::parse(R"({"schema_version": 1, "replies": [
                        {"timing": {"first_token_s": 0.01, "token_interval_s": 0.002}}]})",
                                                   "script"),
                                       "script");
}

// tls_front.py, killed at the end.
class Front {
 public:
  explicit Front(const std::vector<std::string>& arguments) {
    int ends[2];
    if (::pipe(ends) != 0) throw std::runtime_error("pipe failed");
    child_ = ::fork();
    if (child_ == 0) {
      ::dup2(ends[1], STDOUT_FILENO);
      ::close(ends[0]);
      std::vector<std::string> argv = {"/usr/bin/env", "python3",
                                       std::string(MOE_SOURCE_DIR) + "/tests/tools/tls_front.py"};
      argv.insert(argv.end(), arguments.begin(), arguments.end());
      std::vector<char*> pointers;
      for (std::string& one : argv) pointers.push_back(one.data());
      pointers.push_back(nullptr);
      ::execv(pointers[0], pointers.data());
      ::_exit(127);
    }
    ::close(ends[1]);
    char digit = 0;
    while (::read(ends[0], &digit, 1) == 1 && digit != '\n') port_ += digit;
    ::close(ends[0]);
  }
  Front(const Front&) = delete;
  Front& operator=(const Front&) = delete;
  ~Front() {
    ::kill(child_, SIGKILL);
    ::waitpid(child_, nullptr, 0);
  }
  [[nodiscard]] const std::string& port() const { return port_; }

 private:
  pid_t child_ = -1;
  std::string port_;
};

std::string port_of(const ServerThread& server) {
  return server.url().substr(server.url().rfind(':') + 1);
}

ProcessResult serve_few(const std::string& url, const std::vector<std::string>& more,
                        const ProcessOptions& options = {}) {
  std::vector<std::string> args = {
      "serve",         url, "--output-tokens", "8",    "--requests", "6",
      "--concurrency", "2", "--format",        "json", "--quiet",    "--accept-client-bound"};
  args.insert(args.end(), more.begin(), more.end());
  return run_moe_bench(args, options);
}

class ServeTls : public ::testing::Test {
 protected:
  void SetUp() override {
    if (run_process({"/usr/bin/env", "openssl", "version"}).exit_code != 0) {
      GTEST_SKIP() << "openssl, which makes the certificates, is not installed";
    }
    if (run_process({"/usr/bin/env", "python3", "-c", "import ssl"}).exit_code != 0) {
      GTEST_SKIP() << "python3 with ssl, which stands in front of the server, is not installed";
    }
  }

  // A certificate of its own authority for a name, as openssl writes subjectAltName.
  Front front_for(const std::string& name) {
    const ProcessResult made = run_process(
        {"/usr/bin/env", "openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt",
         "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2", "-subj", "/CN=scripted", "-addext",
         "subjectAltName=" + name, "-keyout", (dir_ / "key.pem").string(), "-out", certificate()});
    EXPECT_EQ(made.exit_code, 0) << made.err;
    return Front({"tls", certificate(), (dir_ / "key.pem").string(), port_of(server_)});
  }

  [[nodiscard]] std::string certificate() const { return (dir_ / "certificate.pem").string(); }

  TempDir dir_;
  ServerThread server_{quick_script()};
};

void expect_refusal(const ProcessResult& result, const char* words) {
  EXPECT_EQ(result.exit_code, 5);
  EXPECT_THAT(result.err, HasSubstr("certificate is not trusted"));
  EXPECT_THAT(result.err, HasSubstr(words));
  EXPECT_THAT(result.err, HasSubstr("--ca-file"));
  EXPECT_EQ(count_lines(result.err), 1) << result.err;
}

TEST_F(ServeTls, AnUnknownCertificateIsRefusedAndAKnownOneAccepted) {
  const Front front = front_for("IP:127.0.0.1");
  const std::string url = "https://127.0.0.1:" + front.port();
  expect_refusal(serve_few(url, {}), "self-signed");
  const ProcessResult known = serve_few(url, {"--ca-file", certificate()});
  ASSERT_EQ(known.exit_code, 0) << known.err;
  const Json report = checked_report(known);
  EXPECT_EQ(report.at("metrics").at("requests_succeeded_count").at("value"), 6.0);
  EXPECT_EQ(report.at("metrics").at("output_tokens_count").at("value"), 48.0);
  EXPECT_GE(report.at("metrics").at("ttft_s").at("distribution").at("min").get<double>(), 0.01);
  EXPECT_THAT(known.out, ::testing::Not(HasSubstr("server.certificate_not_checked")));
}

TEST_F(ServeTls, AnotherHostsCertificateIsRefused) {
  const Front front = front_for("DNS:other.example");
  const std::string url = "https://127.0.0.1:" + front.port();
  expect_refusal(serve_few(url, {"--ca-file", certificate()}), "127.0.0.1");
  const ProcessResult insecure = serve_few(url, {"--insecure"});
  EXPECT_EQ(insecure.exit_code, 0) << insecure.err;
  EXPECT_THAT(insecure.out, HasSubstr("server.certificate_not_checked"));
}

TEST_F(ServeTls, AFileOfCertificatesMustBeOne) {
  const Front front = front_for("IP:127.0.0.1");
  const std::string url = "https://127.0.0.1:" + front.port();
  const ProcessResult absent = serve_few(url, {"--ca-file", "/nonexistent.pem"});
  EXPECT_EQ(absent.exit_code, 3);
  EXPECT_THAT(absent.err, HasSubstr("/nonexistent.pem"));
  const ProcessResult other =
      serve_few(url, {"--ca-file", std::string(MOE_SOURCE_DIR) + "/README.md"});
  EXPECT_EQ(other.exit_code, 5);
  EXPECT_THAT(other.err, HasSubstr("--ca-file"));
  EXPECT_EQ(count_lines(other.err), 1) << other.err;
}

TEST_F(ServeTls, AProxyIsUsedWhenGivenWhateverTheEnvironmentSays) {
  // A name that only the proxy knows.
  const Front proxy({"proxy", "-", "-", port_of(server_)});
  ProcessOptions options;
  options.environment = {"no_proxy=*", "NO_PROXY=*", "http_proxy=http://127.0.0.1:9"};
  const ProcessResult plain = serve_few("http://scripted.invalid:80",
                                        {"--proxy", "http://127.0.0.1:" + proxy.port()}, options);
  EXPECT_EQ(plain.exit_code, 0) << plain.err;
}

TEST_F(ServeTls, TlsGoesThroughAProxy) {
  const Front front = front_for("DNS:scripted.invalid");
  const Front proxy({"proxy", "-", "-", front.port()});
  const std::vector<std::string> through = {"--proxy", "http://127.0.0.1:" + proxy.port()};
  expect_refusal(serve_few("https://scripted.invalid", through), "self-signed");
  std::vector<std::string> known = through;
  known.insert(known.end(), {"--ca-file", certificate()});
  const ProcessResult result = serve_few("https://scripted.invalid", known);
  EXPECT_EQ(result.exit_code, 0) << result.err;
}

}  // namespace
}  // namespace moe::test
