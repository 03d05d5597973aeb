import "./styles.css";
import { QueryClientProvider } from "@tanstack/react-query";
import { StrictMode } from "react";
import { createRoot } from "react-dom/client";
import { client } from "./api/queries";
import { App } from "./app";
import { Boundary } from "./ui/boundary";

createRoot(document.getElementById("root")!).render(
	<StrictMode>
		<QueryClientProvider client={client}>
			<Boundary>
				<App />
			</Boundary>
		</QueryClientProvider>
	</StrictMode>,
);
