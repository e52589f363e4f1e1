// Trains on handwritten digits: train [FOLDER]
#include <algorithm>
#include <cstdio>
#include <iterator>

#include "digits.hpp"

const int64_t BATCH = 64, STEPS = 100;

int main(int count, char** arguments) {
  const std::string folder = count > 1 ? arguments[1] : "digits";
  auto images = read<float>(folder + "/train_images.f32");
  auto labels = read<int64_t>(folder + "/train_labels.i64");
  const int64_t batches = labels.size() / BATCH;

  Ort::Env environment(ORT_LOGGING_LEVEL_ERROR);  // else it warns that weights are inputs
  Ort::Session session(environment, (folder + "/step.onnx").c_str(), Ort::SessionOptions());

  // The outputs are the loss, then what each variable is after the step: "<variable>/next".
  const auto outputs = session.GetOutputNames();
  std::vector<std::string> inputs = {"x", "y"};
  for (size_t i = 1; i < outputs.size(); i++)
    inputs.push_back(outputs[i].substr(0, outputs[i].rfind("/next")));
  std::vector<const char*> in, out;
  for (const auto& name : inputs) in.push_back(name.c_str());
  for (const auto& name : outputs) out.push_back(name.c_str());

  // At first the batch alone is given, and variables have their values in the file. What a step
  // gives is what the next one takes.
  std::vector<Ort::Value> state;
  for (int64_t step = 0; step < STEPS; step++) {
    const int64_t start = step % batches * BATCH;
    std::vector<Ort::Value> given;
    given.push_back(tensor(&images[start * 64], {BATCH, 8, 8, 1}));  // 64 pixels an image
    given.push_back(tensor(&labels[start], {BATCH}));
    std::move(state.begin(), state.end(), std::back_inserter(given));
    state = session.Run(Ort::RunOptions(), in.data(), given.data(), given.size(), out.data(),
                        out.size());
    std::printf("step %d loss %.6f\n", static_cast<int>(step + 1), *state[0].GetTensorData<float>());
    state.erase(state.begin());
  }
}
