/** Creates icons of the SVG sprite. */

const SVG = "http://www.w3.org/2000/svg";
const sprite =
  /** @type {HTMLMetaElement | null} */ (document.querySelector('meta[name="icons"]'))?.content ??
  "";

/**
 * @param {string} name
 * @param {string} [classes]
 * @returns {SVGSVGElement}
 */
export function createIcon(name, classes = "") {
  const svg = document.createElementNS(SVG, "svg");
  svg.setAttribute("class", `icon ${classes}`.trim());
  svg.setAttribute("aria-hidden", "true");
  svg.setAttribute("focusable", "false");
  const use = document.createElementNS(SVG, "use");
  use.setAttribute("href", `${sprite}#${name}`);
  svg.append(use);
  return svg;
}

/**
 * Replaces the drawing of an icon.
 *
 * @param {Element | null | undefined} svg
 * @param {string} name
 */
export function setIcon(svg, name) {
  svg?.querySelector("use")?.setAttribute("href", `${sprite}#${name}`);
}
