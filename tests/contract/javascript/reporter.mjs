// Reports each test as one line of JSON.
export default async function* report(source) {
  for await (const { type, data } of source) {
    if (type !== "test:pass" && type !== "test:fail") continue;
    if (data.details.type === "suite") continue;
    const error = data.details.error?.cause ?? data.details.error;
    yield `${JSON.stringify({
      name: data.name,
      passed: type === "test:pass",
      error: error ? String(error.stack ?? error) : null,
    })}\n`;
  }
}
