// Reads handwritten digits: node classify.mjs [FOLDER]
import { readFileSync } from "node:fs";
import * as ort from "onnxruntime-node";

const folder = process.argv[2] ?? "digits";
const read = (name, Numbers) => new Numbers(new Uint8Array(readFileSync(`${folder}/${name}`)).buffer);
const labels = read("labels.i64", BigInt64Array);
const x = new ort.Tensor("float32", read("images.f32", Float32Array), [labels.length, 8, 8, 1]);

const session = await ort.InferenceSession.create(`${folder}/digits.onnx`);
const { logits } = await session.run({ x });

const row = (i) => [...logits.data.subarray(10 * i, 10 * i + 10)];
const guess = (i) => row(i).indexOf(Math.max(...row(i)));
const right = [...labels].filter((label, i) => guess(i) === Number(label)).length;
console.log("logits of the first:", ...row(0).map((value) => value.toFixed(4)));
console.log(`${right} of ${labels.length} digits are right`);
