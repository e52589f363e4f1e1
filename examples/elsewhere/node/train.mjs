// Trains on handwritten digits: node train.mjs [FOLDER]
import { readFileSync } from "node:fs";
import * as ort from "onnxruntime-node";

const BATCH = 64, STEPS = 100;

const folder = process.argv[2] ?? "digits";
const read = (name, Numbers) => new Numbers(new Uint8Array(readFileSync(`${folder}/${name}`)).buffer);
const images = read("train_images.f32", Float32Array);
const labels = read("train_labels.i64", BigInt64Array);

const session = await ort.InferenceSession.create(`${folder}/step_alone.onnx`);
const initial = await ort.InferenceSession.create(`${folder}/initial.onnx`);

const state = { ...(await initial.run({})) }; // what a step gives is what the next one takes
for (let step = 0; step < STEPS; step++) {
  const start = (step % Math.floor(labels.length / BATCH)) * BATCH;
  const x = images.subarray(start * 64, (start + BATCH) * 64); // 64 pixels an image
  const y = labels.subarray(start, start + BATCH);
  const { loss, ...after } = await session.run({
    x: new ort.Tensor("float32", x, [BATCH, 8, 8, 1]),
    y: new ort.Tensor("int64", y, [BATCH]),
    ...state,
  });
  for (const name in after) state[name.slice(0, -"/next".length)] = after[name];
  console.log(`step ${step + 1} loss ${loss.data[0].toFixed(6)}`);
}
