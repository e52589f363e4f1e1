// What both programs share: files of plain numbers, and tensors that look at them.
#pragma once

#include <onnxruntime_cxx_api.h>

#include <fstream>
#include <stdexcept>
#include <string>
#include <vector>

template <class Number>
std::vector<Number> read(const std::string& path) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (!file) throw std::runtime_error("there is no file " + path);
  std::vector<Number> numbers(file.tellg() / sizeof(Number));
  file.seekg(0);
  file.read(reinterpret_cast<char*>(numbers.data()), numbers.size() * sizeof(Number));
  return numbers;
}

// A tensor that uses the memory of its numbers, which have to live as long as it does.
template <class Number>
Ort::Value tensor(Number* numbers, const std::vector<int64_t>& shape) {
  static const auto memory = Ort::MemoryInfo::CreateCpu(OrtArenaAllocator, OrtMemTypeDefault);
  size_t count = 1;
  for (int64_t size : shape) count *= size;
  return Ort::Value::CreateTensor<Number>(memory, numbers, count, shape.data(), shape.size());
}
