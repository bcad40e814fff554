// Interactive REST reference from the OpenAPI document, by Swagger UI, which the service includes.

globalThis.SwaggerUIBundle({
  dom_id: "#reference",
  url: "/openapi.json",
  deepLinking: true,
  docExpansion: "list",
  // Swagger's online validator is off: the page sends nothing to other servers.
  validatorUrl: null,
});
