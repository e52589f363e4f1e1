// Reads handwritten digits: classify [FOLDER]
#include <algorithm>
#include <cstdio>

#include "digits.hpp"

int main(int count, char** arguments) {
  const std::string folder = count > 1 ? arguments[1] : "digits";
  auto images = read<float>(folder + "/images.f32");
  auto labels = read<int64_t>(folder + "/labels.i64");
  const int64_t number = labels.size();

  Ort::Env environment;
  Ort::Session session(environment, (folder + "/digits.onnx").c_str(), Ort::SessionOptions());
  const char* inputs[] = {"x"};
  const char* outputs[] = {"logits"};
  auto x = tensor(images.data(), {number, 8, 8, 1});
  auto made = session.Run(Ort::RunOptions(), inputs, &x, 1, outputs, 1);
  const float* logits = made[0].GetTensorData<float>();

  int right = 0;
  for (int64_t i = 0; i < number; i++) {
    const float* row = logits + 10 * i;
    right += std::max_element(row, row + 10) - row == labels[i];
  }
  std::printf("logits of the first:");
  for (int i = 0; i < 10; i++) std::printf(" %.4f", logits[i]);
  std::printf("\n%d of %lld digits are right\n", right, static_cast<long long>(number));
}
