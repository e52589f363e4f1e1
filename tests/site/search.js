// The search of the built site without a browser: its own script and its own index.
//     node search.js SITE < questions.json > hits.json
// A hit is [page, title, anchor], as a reader would see them, the best one first.

const fs = require("fs");
const path = require("path");
const vm = require("vm");

const site = process.argv[2];
const nothing = { querySelectorAll: () => [], getElementById: () => null, addEventListener() {} };
const context = vm.createContext({
  document: { ...nothing, documentElement: { dataset: {} } },
  localStorage: { setItem() {} },
  URLSearchParams,
  console,
  SPHINX_HIGHLIGHT_ENABLED: false,
  _ready: () => {},
  _: (words) => words,
});
context.window = context;

const run = (name) => vm.runInContext(fs.readFileSync(path.join(site, name), "utf8"), context);
run("_static/language_data.js");
run("_static/searchtools.js");
vm.runInContext("globalThis.Search = Search; globalThis._removeChildren = () => {};", context);
run("searchindex.js");

const hits = (question) =>
  context.Search._performSearch(...context.Search._parseQuery(question))
    .reverse() // the best one is the last, as the page takes them from the end
    .map(([page, title, anchor]) => [page, title, anchor]);
const questions = JSON.parse(fs.readFileSync(0, "utf8"));
process.stdout.write(JSON.stringify(questions.map(hits)));
