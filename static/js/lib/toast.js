/**
 * Says something once, in the page's live region.
 *
 * @param {string} text
 * @param {"success" | "error"} [tone]
 */
export function toast(text, tone = "success") {
  document.querySelector("toast-region")?.dispatchEvent(new CustomEvent("say", { detail: { text, tone } }));
}
