/**
 * <api-docs src="openapi.json">: renders an OpenAPI document with Swagger UI, in the theme of the page.
 */
import { SwaggerUI } from "../../vendor/swagger.js";

class ApiDocs extends HTMLElement {
  #darkScheme = matchMedia("(prefers-color-scheme: dark)");

  connectedCallback() {
    this.#darkScheme.addEventListener("change", this.#applyTheme);
    this.#applyTheme();
    SwaggerUI({
      domNode: this,
      url: this.getAttribute("src"),
      deepLinking: true,
      defaultModelsExpandDepth: 0,
      docExpansion: "list",
      filter: true,
      persistAuthorization: false,
      validatorUrl: null,
    });
  }

  disconnectedCallback() {
    this.#darkScheme.removeEventListener("change", this.#applyTheme);
  }

  #applyTheme = () => {
    const theme = document.documentElement.dataset.theme;
    const isDark = theme ? theme === "dark" : this.#darkScheme.matches;
    document.documentElement.classList.toggle("dark-mode", isDark);
  };
}
customElements.define("api-docs", ApiDocs);
