/**
 * <api-docs src="openapi.json">: the description of an API, to read and to try. Follows the theme of the page.
 */
import { SwaggerUI } from "../../vendor/swagger.js";

class ApiDocs extends HTMLElement {
  #dark = matchMedia("(prefers-color-scheme: dark)");

  connectedCallback() {
    this.#dark.addEventListener("change", this.#follow);
    this.#follow();
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
    this.#dark.removeEventListener("change", this.#follow);
  }

  #follow = () => {
    const chosen = document.documentElement.dataset.theme;
    const isDark = chosen ? chosen === "dark" : this.#dark.matches;
    document.documentElement.classList.toggle("dark-mode", isDark);
  };
}
customElements.define("api-docs", ApiDocs);
