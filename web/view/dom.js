// Small helpers around the document.

import { bytesOf } from "../camera.js";

/**
 * The element of that id, which the page has.
 * @template {Element} [T=HTMLElement]
 * @param {string} id
 * @returns {T}
 */
export function byId(id) {
  return /** @type {T} */ (/** @type {unknown} */ (document.getElementById(id)));
}

/**
 * @template {keyof HTMLElementTagNameMap} K
 * @param {K} tag
 * @param {Record<string, string>} [attributes]
 * @param {(Node | string)[]} children
 * @returns {HTMLElementTagNameMap[K]}
 */
export function el(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

/**
 * @param {string} tag
 * @param {Record<string, string | number>} [attributes]
 * @param {(Node | string)[]} children
 */
export function svg(tag, attributes = {}, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, String(value));
  element.append(...children);
  return element;
}

/** A symbol of icons.svg. @param {string} name */
export function icon(name) {
  return svg("svg", { "aria-hidden": "true" }, svg("use", { href: `icons.svg#${name}` }));
}

/**
 * A picture as a canvas: the page's policy lets no data URL into an <img>.
 * @param {string} url data URL
 * @param {string} label
 */
export function picture(url, label) {
  const canvas = el("canvas", { role: "img", "aria-label": label });
  createImageBitmap(new Blob([bytesOf(url)])).then((bitmap) => {
    canvas.width = bitmap.width;
    canvas.height = bitmap.height;
    canvas.getContext("2d")?.drawImage(bitmap, 0, 0);
  });
  return canvas;
}
