import js from "@eslint/js";
import globals from "globals";

export default [
  { ignores: ["static/vendor/", "node_modules/", ".venv/", ".tools/", "var/", "tests/", "apps/"] },
  js.configs.recommended,
  {
    files: ["static/js/**/*.js"],
    languageOptions: { globals: globals.browser },
    rules: {
      eqeqeq: "error",
      "no-var": "error",
      "prefer-const": "error",
      "id-length": ["error", { exceptions: ["_", "a", "b", "n", "y"], properties: "never" }],
    },
  },
  { files: ["static/js/workers/**/*.js"], languageOptions: { globals: globals.worker } },
  { files: ["config/frontend/**/*.mjs"], languageOptions: { globals: globals.node } },
];
